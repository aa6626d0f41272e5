//! The messages, as far as they are read or written: fields that are not declared are passed over.

use std::collections::BTreeMap;

/// A call, as ttrpc has it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    #[prost(string, tag = "1")]
    pub service: String,
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
}

/// The answer to a call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// What became of a call; all is well if it is absent or its code is 0.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RegisterPluginRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Two digits: those with lower ones are asked first.
    #[prost(string, tag = "2")]
    pub index: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigureRequest {
    #[prost(string, tag = "2")]
    pub runtime: String,
    #[prost(string, tag = "3")]
    pub version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigureResponse {
    /// A bit for each event, that of [`event`] 1 being the lowest.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SynchronizeRequest {
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<PodSandbox>,
    /// There are others, in a request that follows.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SynchronizeResponse {
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// `RunPodSandbox`, `StopPodSandbox` and `RemovePodSandbox` have the first field alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodRequest {
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    /// Of `UpdatePodSandbox`: what the pod is to have.
    #[prost(message, optional, tag = "3")]
    pub resources: Option<LinuxResources>,
}

/// How runtimes before NRI 0.12 tell what becomes of a pod.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StateChangeEvent {
    #[prost(int32, tag = "1")]
    pub event: i32,
    #[prost(message, optional, tag = "2")]
    pub pod: Option<PodSandbox>,
}

/// The events' numbers.
pub mod event {
    pub const RUN_POD: i32 = 1;
    pub const STOP_POD: i32 = 2;
    pub const REMOVE_POD: i32 = 3;
    pub const UPDATE_POD: i32 = 12;
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandbox {
    /// The sandbox's, of which a pod may have several one after another.
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub uid: String,
    #[prost(string, tag = "4")]
    pub namespace: String,
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandbox>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxPodSandbox {
    /// Of all containers together.
    #[prost(message, optional, tag = "2")]
    pub resources: Option<LinuxResources>,
    #[prost(string, tag = "3")]
    pub cgroup_parent: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxResources {
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<LinuxCpu>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxCpu {
    /// What is requested, 1,024 for each CPU; 2 stands for less than that, and for nothing.
    #[prost(message, optional, tag = "1")]
    pub shares: Option<OptionalU64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OptionalU64 {
    #[prost(uint64, tag = "1")]
    pub value: u64,
}
