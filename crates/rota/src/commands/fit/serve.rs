//! `rota fit --serve`: an extender of Kubernetes' scheduler, over HTTP.

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use rota_model::config::Source;
use tiny_http::{Header, Method, Request, Response, Server};

use super::super::{Failure, note};
use super::read;
use crate::fleet::extender::{Hosts, filter, prioritize};

/// A request has the nodes of a cluster, whole ones if the scheduler asks without a cache.
const REQUEST_MAX: u64 = 64 << 20;
/// So many requests are answered at a time: a scheduler asks for one pod after the other.
const WORKERS: usize = 4;

/// Files, and folders with a file for each node.
struct Files(Vec<PathBuf>);

impl Hosts for Files {
    fn host(&self, node: &str) -> Result<Option<Source>> {
        let path = self.0.iter().find_map(|given| match given.is_dir() {
            true => {
                Some(given.join(format!("{node}.toml"))).filter(|path| !node.contains('/') && path.is_file())
            }
            false => (given.file_stem()?.to_str()? == node).then(|| given.clone()),
        });
        path.map(|path| read(&path).map_err(Failure::into_error)).transpose()
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
    let hosts = Files(hosts);
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
