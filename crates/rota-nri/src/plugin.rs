//! The conversation with the runtime.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use prost::Message;
use rota_model::{Pod, Qos};

use crate::messages::{
    ConfigureRequest, ConfigureResponse, LinuxResources, PodRequest, PodSandbox, RegisterPluginRequest,
    Request, Response, StateChangeEvent, Status, SynchronizeRequest, SynchronizeResponse, event,
};
use crate::wire::{Frame, Kind, PLUGIN, RUNTIME, Trunk};

/// What the runtime calls the plugin by.
const NAME: &str = "rota";
/// After those that change containers.
const INDEX: &str = "90";
const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
/// The number of the plugin's only call.
const REGISTER: u32 = 1;
/// ttrpc's code for a method that is not there.
const UNIMPLEMENTED: i32 = 12;
/// The kubelet's shares for one CPU, and the least that it gives.
const SHARES_OF_CPU: u64 = 1024;
const SHARES_MIN: u64 = 2;

/// What there is to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The runtime's name and version: it has taken the plugin.
    Runtime(String),
    /// All pods of the kubelet's that there are now, by their uids.
    Pods(Vec<Pod>),
}

/// Tells of the pods of the runtime at the other end of `stream`, until it hangs up.
///
/// Without `updates` the runtime is not asked to tell of pods whose requests change as they run. One before NRI 0.10
/// hangs up on who asks that.
///
/// # Errors
/// Always in the end: the runtime has hung up, has refused the plugin, or does not keep to the protocol.
pub fn follow(stream: impl Read + Write, updates: bool, mut tell: impl FnMut(News)) -> Result<Infallible> {
    let mut trunk = Trunk::new(stream);
    let register = RegisterPluginRequest { name: NAME.to_owned(), index: INDEX.to_owned() };
    let (service, method) = (RUNTIME_SERVICE.to_owned(), "RegisterPlugin".to_owned());
    let request = Request { service, method, payload: register.encode_to_vec() };
    trunk.send(RUNTIME, REGISTER, Kind::Request, &request)?;
    let mut pods = Pods { updates, sandboxes: BTreeMap::new(), coming: BTreeMap::new() };
    loop {
        let frame = trunk.receive()?;
        match (frame.connection, frame.kind) {
            (PLUGIN, Kind::Request) => {
                let (response, news) = pods.answer(&frame)?;
                trunk.send(PLUGIN, frame.call, Kind::Response, &response)?;
                news.into_iter().for_each(&mut tell);
            }
            (RUNTIME, Kind::Response) if frame.call == REGISTER => registered(&frame)?,
            _ => anyhow::bail!("the runtime sends what nobody has asked for"),
        }
    }
}

/// Whether the runtime has taken the plugin.
fn registered(frame: &Frame) -> Result<()> {
    let response = Response::decode(&frame.message[..]).context("the answer to the registration")?;
    let status = response.status.unwrap_or_default();
    ensure!(status.code == 0, "the runtime refuses the plugin: {}", status.message);
    Ok(())
}

/// The pods so far.
struct Pods {
    updates: bool,
    /// By the ids of their sandboxes: a pod's next one may come before the last one has gone.
    sandboxes: BTreeMap<String, Pod>,
    /// Those of a list that is not complete.
    coming: BTreeMap<String, Pod>,
}

impl Pods {
    /// The answer to a call, and what there is to tell after it.
    fn answer(&mut self, frame: &Frame) -> Result<(Response, Option<News>)> {
        let request = Request::decode(&frame.message[..]).context("a call of the runtime's")?;
        let payload = &request.payload[..];
        let pod = || PodRequest::decode(payload).context("a pod of the runtime's");
        let empty = Response::default();
        Ok(match &request.method[..] {
            "Configure" => self.configure(payload)?,
            "Synchronize" => self.synchronize(payload)?,
            "RunPodSandbox" => (empty, self.has(pod()?)),
            "UpdatePodSandbox" => (empty, self.has(pod()?)),
            "StopPodSandbox" | "RemovePodSandbox" => (empty, self.has_gone(pod()?.pod)),
            "StateChange" => (empty, self.change(payload)?),
            "Shutdown" => (empty, None),
            other => {
                let message = format!("there is no method {other}");
                (Response { status: Some(Status { code: UNIMPLEMENTED, message }), ..empty }, None)
            }
        })
    }

    fn configure(&self, payload: &[u8]) -> Result<(Response, Option<News>)> {
        let request = ConfigureRequest::decode(payload).context("how the runtime configures the plugin")?;
        let pods = [event::RUN_POD, event::STOP_POD, event::REMOVE_POD];
        let wanted = pods.into_iter().chain(self.updates.then_some(event::UPDATE_POD));
        let events = wanted.fold(0, |mask, event| mask | 1 << (event - 1));
        let news = News::Runtime(format!("{} {}", request.runtime, request.version));
        Ok((answered(&ConfigureResponse { events }), Some(news)))
    }

    fn synchronize(&mut self, payload: &[u8]) -> Result<(Response, Option<News>)> {
        let request = SynchronizeRequest::decode(payload).context("the runtime's list of pods")?;
        self.coming.extend(request.pods.into_iter().filter_map(|sandbox| pod_of(sandbox, None)));
        let response = answered(&SynchronizeResponse { more: request.more });
        if request.more {
            return Ok((response, None));
        }
        self.sandboxes = std::mem::take(&mut self.coming);
        Ok((response, Some(self.news())))
    }

    fn change(&mut self, payload: &[u8]) -> Result<Option<News>> {
        let change = StateChangeEvent::decode(payload).context("what has become of a pod")?;
        Ok(match change.event {
            event::RUN_POD => self.has(PodRequest { pod: change.pod, resources: None }),
            event::STOP_POD | event::REMOVE_POD => self.has_gone(change.pod),
            _ => None,
        })
    }

    /// The pod is there, as it is now.
    fn has(&mut self, request: PodRequest) -> Option<News> {
        let (id, pod) = pod_of(request.pod?, request.resources)?;
        let before = self.sandboxes.insert(id, pod.clone());
        (before.as_ref() != Some(&pod)).then(|| self.news())
    }

    fn has_gone(&mut self, sandbox: Option<PodSandbox>) -> Option<News> {
        self.sandboxes.remove(&sandbox?.id).map(|_| self.news())
    }

    fn news(&self) -> News {
        let pods: BTreeMap<&str, &Pod> = self.sandboxes.values().map(|pod| (pod.uid.as_str(), pod)).collect();
        News::Pods(pods.into_values().cloned().collect())
    }
}

fn answered(message: &impl Message) -> Response {
    Response { status: None, payload: message.encode_to_vec() }
}

/// A sandbox's id and its pod; nothing if it is not the kubelet's.
fn pod_of(sandbox: PodSandbox, updated: Option<LinuxResources>) -> Option<(String, Pod)> {
    let linux = sandbox.linux.unwrap_or_default();
    let qos = qos(&linux.cgroup_parent)?;
    let cpu = updated.or(linux.resources).and_then(|resources| resources.cpu);
    let shares = cpu.and_then(|cpu| cpu.shares).map_or(0, |shares| shares.value);
    let pod = Pod {
        uid: sandbox.uid,
        namespace: sandbox.namespace,
        name: sandbox.name,
        qos,
        request_millis: millis(shares),
        annotations: sandbox.annotations,
    };
    Some((sandbox.id, pod))
}

/// The class by where the kubelet has the pod's cgroup: `kubepods-burstable-pod1.slice`, `/kubepods/burstable/pod1`.
fn qos(cgroup_parent: &str) -> Option<Qos> {
    let has = |word| cgroup_parent.split(['/', '-', '.']).any(|part| part == word);
    match (has("kubepods"), has("burstable"), has("besteffort")) {
        (false, ..) => None,
        (true, true, _) => Some(Qos::Burstable),
        (true, false, true) => Some(Qos::BestEffort),
        (true, false, false) => Some(Qos::Guaranteed),
    }
}

/// What was requested, of which the kubelet makes shares: 1,024 for each CPU, rounded down.
fn millis(shares: u64) -> u64 {
    if shares <= SHARES_MIN { 0 } else { shares.saturating_mul(1_000).div_ceil(SHARES_OF_CPU) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_where_the_kubelet_has_the_cgroup() {
        let cases = [
            ("kubepods-pod0a1b_2c.slice", Some(Qos::Guaranteed)),
            ("kubepods-burstable-pod0a1b_2c.slice", Some(Qos::Burstable)),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice",
                Some(Qos::BestEffort),
            ),
            ("/kubepods/pod0a1b-2c", Some(Qos::Guaranteed)),
            ("/kubelet/kubepods/burstable/pod1", Some(Qos::Burstable)),
            ("/system.slice", None),
            ("", None),
        ];
        for (parent, class) in cases {
            assert_eq!(qos(parent), class, "{parent}");
        }
    }

    /// Every request that is more than the least share is known exactly.
    #[test]
    fn requests_follow_from_shares() {
        for request in 2..=512_000 {
            let shares = (request * SHARES_OF_CPU / 1_000).max(SHARES_MIN);
            assert_eq!(millis(shares), if shares == SHARES_MIN { 0 } else { request });
        }
        assert_eq!([0, 2, u64::MAX].map(millis).map(|millis| millis > 0), [false, false, true]);
    }
}
