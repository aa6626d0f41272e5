//! Recordings that somebody has made up.

use rota_record::Recording;

/// Before what is packed: the mark of a recording and its version.
const START: &[u8; 12] = b"ROTA-REC\x01\0\0\0";

/// Reads a recording with this body, packed as any other. What can be read can be written, and says the same then.
///
/// # Panics
///
/// If what was read cannot be written, or says something else afterwards.
pub fn read(body: &[u8]) {
    let packed = zstd::bulk::compress(body, 1).expect("it is in memory");
    let Ok(recording) = Recording::from_bytes(&[&START[..], &packed].concat()) else { return };
    let written = recording.to_bytes().expect("it was read");
    let again = Recording::from_bytes(&written).expect("it was written");
    assert_eq!(written, again.to_bytes().expect("it was written before"));
}
