//! The file of a recording.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `ROTA-REC` |
//! | 4 | the version of what follows, little-endian: [`VERSION`] |
//! | the rest | a zstd frame with a checksum: the [`Recording`], then its events, in the encoding of the crate `postcard` |
//!
//! Who reads a file gives it memory by its size: it unpacks to [`RATIO_MAX`] times as much at most. One that is more
//! regular than that is made larger by a skippable zstd frame at its end.
//!
//! Postcard writes fields in their order and without names: whole numbers as LEB128, signed ones zig-zag, an `enum` as
//! its variant's number and then its fields, `Option` as 0 or 1, texts and lists with their length in front. What is
//! not as derived: a set of CPUs is a text, as `0-3,8`; an event's time is how many ns it is after the event before. So
//! an event takes some four bytes, two in the file. A change of a type in [`crate::Recording`] is a new version.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use crate::check::Meaningless;
use crate::recording::{Event, Recording};

const MAGIC: &[u8; 8] = b"ROTA-REC";

/// What this crate writes and reads.
pub const VERSION: u32 = 1;

/// A recording is not larger than this when it is unpacked.
const BYTES_MAX: u64 = 1 << 30;

/// How much a file may unpack to, of its own size, and whatever its size is. A usual one unpacks to five times as much.
pub const RATIO_MAX: u64 = 64;
const BYTES_FREE: u64 = 4 << 20;

/// An event takes two bytes at least: its time, and what it is.
const EVENT_BYTES: u64 = 2;

/// The head of a frame that zstd passes over, with its length.
const SKIPPABLE: u32 = 0x184D_2A50;

/// zstd's own default: a higher level saves a tenth and takes thrice as long.
const LEVEL: i32 = 3;

/// Why bytes are no recording.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// They begin otherwise.
    #[error("this is no recording; `rota record` makes one")]
    Foreign,
    /// Another version wrote them.
    #[error("the recording has version {0}, and this is for version {VERSION}; use the rota that made it")]
    Version(u32),
    /// They are cut or changed.
    #[error("the recording is damaged: {0}; record anew")]
    Damaged(String),
    /// They are well-formed, and what they say cannot be.
    #[error("the recording is damaged: {0}; record anew")]
    Meaningless(#[from] Meaningless),
}

fn damaged(error: impl ToString) -> FormatError {
    FormatError::Damaged(error.to_string())
}

/// To how much so many packed bytes may unpack.
fn unpacked_max(packed: u64) -> u64 {
    packed.saturating_mul(RATIO_MAX).clamp(BYTES_FREE, BYTES_MAX)
}

#[derive(Deserialize)]
struct Events(#[serde(deserialize_with = "deltas::deserialize")] Vec<Event>);

#[derive(Serialize)]
struct EventsOf<'a>(#[serde(serialize_with = "deltas::serialize")] &'a [Event]);

impl Recording {
    /// The file.
    ///
    /// # Errors
    ///
    /// If it breaks a rule of [`Recording::check`], since nobody could read it, or is too large.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let head = postcard::to_stdvec(self).map_err(damaged)?;
        let body = postcard::to_extend(&EventsOf(&self.events), head).map_err(damaged)?;
        if body.len() as u64 > BYTES_MAX {
            return Err(damaged("it is larger than 1 GiB"));
        }
        let mut bytes = [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat();
        let mut encoder = zstd::Encoder::new(&mut bytes, LEVEL).map_err(damaged)?;
        encoder.include_checksum(true).map_err(damaged)?;
        encoder.write_all(&body).map_err(damaged)?;
        encoder.finish().map_err(damaged)?;
        let packed = (bytes.len() - MAGIC.len() - 4) as u64;
        if body.len() as u64 > unpacked_max(packed) {
            let room = (body.len() as u64 / RATIO_MAX + 1 - packed) as u32;
            bytes.extend([SKIPPABLE.to_le_bytes(), room.to_le_bytes()].concat());
            bytes.resize(bytes.len() + room as usize, 0);
        }
        Ok(bytes)
    }

    /// What a file says.
    ///
    /// # Errors
    ///
    /// If it is none, is of another version, is damaged, or says what cannot be.
    pub fn from_bytes(bytes: &[u8]) -> Result<Recording, FormatError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(FormatError::Foreign)?;
        let (version, packed) =
            rest.split_first_chunk::<4>().ok_or_else(|| damaged("it ends in its version"))?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(FormatError::Version(version));
        }
        let body = unpack(packed)?;
        let (mut recording, rest) = postcard::take_from_bytes::<Recording>(&body).map_err(damaged)?;
        // Nothing is made of events before the rest says that there can be so many.
        recording.check_head()?;
        let (count, listed) = postcard::take_from_bytes::<u64>(rest).map_err(damaged)?;
        recording.check_count(count)?;
        if count > listed.len() as u64 / EVENT_BYTES {
            return Err(damaged(format!("it ends before its {count} events")));
        }
        let (Events(events), rest) = postcard::take_from_bytes(rest).map_err(damaged)?;
        if !rest.is_empty() {
            return Err(damaged(format!("{} bytes are too many", rest.len())));
        }
        recording.events = events;
        recording.check()?;
        Ok(recording)
    }
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, FormatError> {
    let max = unpacked_max(packed.len() as u64);
    let mut body = Vec::new();
    let decoder = zstd::Decoder::with_buffer(packed).map_err(damaged)?;
    decoder.take(max + 1).read_to_end(&mut body).map_err(damaged)?;
    if body.len() as u64 > max {
        return Err(damaged(format!("it unpacks to more than {max} bytes")));
    }
    Ok(body)
}

/// Events, each with the time since the one before.
pub(crate) mod deltas {
    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};

    use crate::recording::{Event, What};

    pub fn serialize<S: Serializer>(events: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
        let before = std::iter::once(0).chain(events.iter().map(|event| event.at_ns));
        serializer.collect_seq(
            events.iter().zip(before).map(|(event, before)| (event.at_ns.wrapping_sub(before), event.what)),
        )
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
        deserializer.deserialize_seq(Events)
    }

    struct Events;

    impl<'de> Visitor<'de> for Events {
        type Value = Vec<Event>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("events")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Event>, A::Error> {
            let mut events = Vec::with_capacity(list.size_hint().unwrap_or(0));
            let mut at_ns: u64 = 0;
            while let Some((delta_ns, what)) = list.next_element::<(u64, What)>()? {
                at_ns = at_ns.checked_add(delta_ns).ok_or_else(|| A::Error::custom("a time overflows"))?;
                events.push(Event { at_ns, what });
            }
            Ok(events)
        }
    }
}

/// A set of CPUs as a text; an absent one as the empty text.
pub(crate) mod cpus {
    use std::borrow::Cow;

    use rota_model::CpuSet;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// A set that may be absent, or may not.
    pub trait Cpus: Sized {
        fn set(&self) -> Option<&CpuSet>;
        fn of(set: CpuSet) -> Self;
    }

    impl Cpus for CpuSet {
        fn set(&self) -> Option<&CpuSet> {
            Some(self)
        }

        fn of(set: CpuSet) -> CpuSet {
            set
        }
    }

    impl Cpus for Option<CpuSet> {
        fn set(&self) -> Option<&CpuSet> {
            self.as_ref()
        }

        fn of(set: CpuSet) -> Option<CpuSet> {
            Some(set).filter(|set| !set.is_empty())
        }
    }

    pub fn serialize<T: Cpus, S: Serializer>(cpus: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&cpus.set().map_or_else(String::new, CpuSet::to_string))
    }

    pub fn deserialize<'de, T: Cpus, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map(T::of).map_err(D::Error::custom)
    }
}
