//! `rota fit --serve`: an extender of Kubernetes' scheduler, over HTTP.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow};
use rota_rules::fleet::Host;
use tiny_http::{Header, Method, Request, Response, Server};

use super::super::{Failure, note};
use super::read;
use crate::extender::{Hosts, filter, prioritize};

/// A request has the nodes of a cluster, whole ones if the scheduler asks without a cache.
const REQUEST_MAX: u64 = 64 << 20;
/// So many requests are answered at a time: a scheduler asks for one pod after the other.
const WORKERS: usize = 4;

/// When a file was changed last, and how long it is.
type Stamp = (SystemTime, u64);

/// Files, and folders with a file for each node. A host is planned when its file is new or has changed.
struct Files {
    given: Vec<PathBuf>,
    planned: Mutex<HashMap<PathBuf, (Stamp, Arc<Host>)>>,
}

impl Files {
    fn path(&self, node: &str) -> Option<PathBuf> {
        self.given.iter().find_map(|given| match given.is_dir() {
            true => {
                Some(given.join(format!("{node}.toml"))).filter(|path| !node.contains('/') && path.is_file())
            }
            false => (given.file_stem()?.to_str()? == node).then(|| given.clone()),
        })
    }

    fn planned(&self, path: PathBuf) -> Result<Arc<Host>> {
        let data = std::fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?;
        let stamp = (data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len());
        let known = || self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((planned_at, host)) = known().get(&path)
            && *planned_at == stamp
        {
            return Ok(host.clone());
        }
        let host = Arc::new(Host::new(read(&path).map_err(Failure::into_error)?)?);
        known().insert(path, (stamp, host.clone()));
        Ok(host)
    }
}

impl Hosts for Files {
    fn host(&self, node: &str) -> Result<Option<Arc<Host>>> {
        self.path(node).map(|path| self.planned(path)).transpose()
    }
}

/// Answers until the process is ended.
pub fn serve(address: SocketAddr, hosts: Vec<PathBuf>) -> Result<(), Failure> {
    let bound = Server::http(address).map_err(|error| anyhow!("{error}"));
    let server = bound
        .with_context(|| {
            format!("listening on {address}; give --serve an address of this host and a free port")
        })
        .map_err(Failure::Failed)?;
    note(&format!("answering Kubernetes' scheduler at http://{}", server.server_addr()));
    let hosts = Files { given: hosts, planned: Mutex::default() };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                for request in server.incoming_requests() {
                    answer(&hosts, request);
                }
            });
        }
    });
    Ok(())
}

fn answer(hosts: &Files, mut request: Request) {
    let (status, text) = match (request.method(), request.url()) {
        (Method::Post, "/filter") => outcome(body(&mut request).and_then(|body| filter(hosts, &body))),
        (Method::Post, "/prioritize") => {
            outcome(body(&mut request).and_then(|body| prioritize(hosts, &body)))
        }
        (Method::Get, "/healthz") => (200, "ok\n".to_owned()),
        _ => (404, "POST /filter and /prioritize, or GET /healthz\n".to_owned()),
    };
    let json = Header::from_bytes("Content-Type", "application/json").expect("a header");
    // Who asked and went away is answered by nobody.
    let _ = request.respond(Response::from_string(text).with_status_code(status).with_header(json));
}

fn outcome(answer: Result<String>) -> (u16, String) {
    match answer {
        Ok(text) => (200, text),
        Err(error) => (400, format!("{error:#}\n")),
    }
}

fn body(request: &mut Request) -> Result<String> {
    let mut text = String::new();
    let read = request.as_reader().take(REQUEST_MAX).read_to_string(&mut text);
    read.context("reading the request")?;
    Ok(text)
}
