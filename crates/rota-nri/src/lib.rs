//! What a container runtime tells of its pods, by the Node Resource Interface of containerd and CRI-O.
//!
//! A plugin connects to the runtime's socket and registers itself. The runtime then asks which events it wants, tells
//! all pods that there are, and from then on what becomes of them. `wire` has the frames, `messages` what is in them,
//! and `plugin` the conversation.
//!
//! **Invariant:** a plugin only listens. It answers each request at once, since the runtime waits for it, and asks for
//! no change of any container. It knows nothing of tenants.
//!
//! Sources: `pkg/api/api.proto`, `pkg/net/multiplex` and `pkg/adaptation` of NRI 0.12, and ttrpc's `PROTOCOL.md`.

mod messages;
mod plugin;
mod wire;

pub use plugin::{News, follow};
