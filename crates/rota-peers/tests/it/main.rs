//! The schedulers that Rota is compared with, each against what its documentation and the papers say of it.

mod credit;
mod credit2;
mod deadline;
mod fair;
mod limits;
mod machines;
mod mqfq;
mod over;
mod rtds;
