//! rota-table
