//! Fair shares between tenants: the bound, what breaks it, and how near Rota is to the definition.

mod bound;
mod compare;
pub mod scenarios;
mod waits;
