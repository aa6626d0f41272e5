//! rotad
