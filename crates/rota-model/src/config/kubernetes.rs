//! `[kubernetes]`: the pods of this node are tenants.

use std::path::PathBuf;

use toml::de::DeValue;

use super::error::Errors;
use super::table::Table;
use super::value;
use crate::quote;

const KEYS: [&str; 2] = ["socket", "latency"];

/// How pods become tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// Where the container runtime tells of its pods.
    pub socket: PathBuf,
    /// The longest wait, in ns, that a reserved pod is promised, and the shortest that it may ask for: shorter waits
    /// need more slots. At least 1.
    pub latency_ns: u64,
}

impl Kubernetes {
    /// Where NRI's sockets are, in containerd and CRI-O.
    const SOCKET: &str = "/var/run/nri/nri.sock";
    const LATENCY_NS: u64 = 20_000_000;
}

/// Reads `[kubernetes]`; nothing if the file has none.
pub(super) fn read(root: &Table, errors: &mut Errors) -> Option<Kubernetes> {
    let table = root.table("kubernetes", "[kubernetes], once", errors)?;
    table.refuse_unknown(&KEYS, errors);
    let socket = table.read("socket", errors, socket);
    let latency_ns = table.read("latency", errors, value::latency);
    Some(Kubernetes {
        socket: socket.unwrap_or_else(|| Kubernetes::SOCKET.into()),
        latency_ns: latency_ns.unwrap_or(Kubernetes::LATENCY_NS),
    })
}

fn socket(value: &DeValue) -> Result<PathBuf, String> {
    let text = value::text(value, "e.g. \"/var/run/nri/nri.sock\"")?;
    match text.starts_with('/') {
        true => Ok(text.into()),
        false => Err(format!("{} is no path from /; write e.g. \"/var/run/nri/nri.sock\"", quote(text))),
    }
}
