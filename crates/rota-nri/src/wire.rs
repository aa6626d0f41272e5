//! Frames: two connections over one socket, and the calls in each.
//!
//! The socket carries pieces of both connections, each with the connection's number and its length. What a connection
//! carries is a stream of ttrpc's frames: length, number of the call, kind, flags, and the message. All numbers are
//! big-endian.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};

use anyhow::{Result, anyhow, bail, ensure};
use prost::Message;

/// The connection on which the runtime calls the plugin.
pub const PLUGIN: u32 = 1;
/// The connection on which the plugin calls the runtime.
pub const RUNTIME: u32 = 2;

const PIECE_HEADER: usize = 8;
const FRAME_HEADER: usize = 10;
/// No message of ttrpc's is longer.
const MESSAGE_MAX: usize = 4 << 20;
/// What the other end reads at once: a longer piece is an error there.
const PIECE_MAX: usize = 4096;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call.
    Request = 1,
    /// The answer to it.
    Response = 2,
}

/// A frame, and on which connection it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub connection: u32,
    /// The number of the call.
    pub call: u32,
    pub kind: Kind,
    pub message: Vec<u8>,
}

/// One end of the socket.
pub struct Trunk<S> {
    stream: S,
    /// What has come of each connection's next frame.
    incoming: BTreeMap<u32, Vec<u8>>,
}

impl<S: Read + Write> Trunk<S> {
    pub fn new(stream: S) -> Trunk<S> {
        Trunk { stream, incoming: BTreeMap::new() }
    }

    /// The next frame, as soon as all of it is there.
    ///
    /// # Errors
    /// If the other end hangs up, or sends what is no frame.
    pub fn receive(&mut self) -> Result<Frame> {
        loop {
            for (&connection, bytes) in &mut self.incoming {
                if let Some(frame) = take_frame(connection, bytes)? {
                    return Ok(frame);
                }
            }
            let mut header = [0; PIECE_HEADER];
            self.stream.read_exact(&mut header).map_err(ended)?;
            let [connection, length] = [number(&header[..4]), number(&header[4..])];
            ensure!(length as usize <= FRAME_HEADER + MESSAGE_MAX, "a piece of {length} bytes is too long");
            ensure!([PLUGIN, RUNTIME].contains(&connection), "there is no connection {connection}");
            let bytes = self.incoming.entry(connection).or_default();
            let begin = bytes.len();
            bytes.resize(begin + length as usize, 0);
            self.stream.read_exact(&mut bytes[begin..]).map_err(ended)?;
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// If the other end has hung up.
    pub fn send(&mut self, connection: u32, call: u32, kind: Kind, message: &impl Message) -> Result<()> {
        let message = message.encode_to_vec();
        let mut frame = Vec::with_capacity(FRAME_HEADER + message.len());
        frame.extend((message.len() as u32).to_be_bytes());
        frame.extend(call.to_be_bytes());
        frame.extend([kind as u8, 0]);
        frame.extend(message);
        for piece in frame.chunks(PIECE_MAX) {
            let header = [connection.to_be_bytes(), (piece.len() as u32).to_be_bytes()].concat();
            self.stream.write_all(&[&header, piece].concat()).map_err(ended)?;
        }
        Ok(())
    }
}

/// Why there is no more to read, or nobody who reads.
fn ended(error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            anyhow!("the runtime has hung up")
        }
        _ => anyhow::Error::new(error).context("the connection to the runtime fails"),
    }
}

/// The first frame in `bytes`, which it is taken out of; nothing if it is not complete.
fn take_frame(connection: u32, bytes: &mut Vec<u8>) -> Result<Option<Frame>> {
    let Some((header, rest)) = bytes.split_at_checked(FRAME_HEADER) else { return Ok(None) };
    let [length, call] = [number(&header[..4]), number(&header[4..8])];
    ensure!(length as usize <= MESSAGE_MAX, "a message of {length} bytes is too long");
    let kind = match header[8] {
        1 => Kind::Request,
        2 => Kind::Response,
        other => bail!("a frame of kind {other} is not of this protocol"),
    };
    let Some(message) = rest.get(..length as usize) else { return Ok(None) };
    let frame = Frame { connection, call, kind, message: message.to_vec() };
    bytes.drain(..FRAME_HEADER + length as usize);
    Ok(Some(frame))
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
