//! Files: what is written is read again, and of what was not, nothing is believed.

#![allow(clippy::unwrap_used)] // as in every test; here also in what the tests share

use std::io::Write;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rota_record::{
    Cause, Class, Event, FormatError, Host, How, Limits, Place, Policy, Quota, Rank, Recording, Tenant,
    Thread, VERSION, What, summaries,
};

const CPUS: u32 = 3;

fn cause(threads: u32) -> impl Strategy<Value = Cause> {
    prop_oneof![(0..threads).prop_map(Cause::Thread), Just(Cause::Timer), Just(Cause::Outside)]
}

fn what(threads: u32) -> impl Strategy<Value = What> {
    let how =
        prop_oneof![Just(How::Preempted), Just(How::Waits), Just(How::WaitsForDevice), Just(How::Exits)];
    prop_oneof![
        (0..threads, cause(threads)).prop_map(|(thread, cause)| What::Waking { thread, cause }),
        (0..threads).prop_map(|thread| What::Woken { thread }),
        (0..threads, cause(threads)).prop_map(|(thread, cause)| What::Starts { thread, cause }),
        (0..CPUS, 0..threads).prop_map(|(cpu, thread)| What::Runs { cpu, thread }),
        (0..threads, how).prop_map(|(thread, how)| What::Stops { thread, how }),
    ]
}

fn tenant(number: u32) -> impl Strategy<Value = Tenant> {
    let class = prop_oneof![
        (1..=1_000_000_000u32, 1..1_000_000_000u64, any::<bool>())
            .prop_map(|(share_ppb, latency_ns, capped)| Class::Reserved { share_ppb, latency_ns, capped }),
        (1..=10_000u32).prop_map(|weight| Class::Shared { weight }),
        Just(Class::Background)
    ];
    let quota = (1_000_000..9_000_000_000u64, 1_000_000..=1_000_000_000u64)
        .prop_map(|(quota_ns, period_ns)| Quota { quota_ns, period_ns });
    let limits =
        (1..=10_000u32, prop::option::of(quota)).prop_map(|(weight, quota)| Limits { weight, quota });
    (class, limits, any::<bool>(), 0..CPUS).prop_map(move |(class, limits, is_vm, cpu)| Tenant {
        name: format!("tenant {number}"),
        cgroup: "a/b".to_owned(),
        class,
        vcpus: number + 1,
        is_vm,
        affinity: (cpu > 0).then(|| [cpu].into_iter().collect()),
        exclusive_cores: !is_vm,
        limits,
    })
}

fn thread(tenants: Vec<bool>) -> impl Strategy<Value = Thread> {
    let rank = prop_oneof![
        (-20..=19i8).prop_map(Rank::Ordinary),
        Just(Rank::Idle),
        (1..=99u8).prop_map(Rank::Realtime)
    ];
    let tenant = prop::option::of(0..tenants.len() as u32);
    (tenant, ".{0,15}", any::<bool>(), rank, 0..CPUS).prop_map(move |(tenant, name, is_kernel, rank, cpu)| {
        let is_vm = tenant.is_some_and(|tenant| tenants[tenant as usize]);
        Thread {
            tid: cpu as i32 - 1,
            name,
            tenant,
            vcpu: is_vm.then_some(0),
            is_kernel,
            rank,
            cpus: (cpu > 0).then(|| [cpu].into_iter().collect()),
        }
    })
}

fn recording() -> impl Strategy<Value = Recording> {
    let tenants =
        prop_oneof![Just(1), Just(2)].prop_flat_map(|count| (0..count).map(tenant).collect::<Vec<_>>());
    tenants
        .prop_flat_map(|tenants| {
            let vms: Vec<bool> = tenants.iter().map(|tenant| tenant.is_vm).collect();
            let threads = prop::collection::vec(thread(vms), 1..6);
            let events = prop::collection::vec((0..1_000_000u64, what(1)), 0..60);
            (Just(tenants), threads, events)
        })
        .prop_flat_map(|(tenants, threads, events)| {
            let whats = prop::collection::vec(what(threads.len() as u32), events.len());
            (Just(tenants), Just(threads), Just(events), whats)
        })
        .prop_map(|(tenants, threads, events, whats)| {
            let mut at_ns = 0;
            let events = events.iter().zip(whats).map(|((delta_ns, _), what)| {
                at_ns += delta_ns;
                Event { at_ns, what }
            });
            let place = |cpu| Place { cpu, core: cpu / 2, ..Place::default() };
            Recording {
                kernel: "7.3.4".to_owned(),
                policy: Policy::Other("lavd".to_owned()),
                began_ns: 5,
                events: events.collect(),
                duration_ns: at_ns + 1,
                lost: 3,
                host: Host {
                    cpus: (0..CPUS).map(place).collect(),
                    housekeeping: [0].into_iter().collect(),
                    floor_ppb: 5_000_000,
                    slot_min_ns: 50_000,
                    switch_ns: 5_000,
                    migration_ns: 0,
                },
                tenants,
                threads,
            }
        })
}

/// A file of that body, whatever it is.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = [b"ROTA-REC".as_slice(), &VERSION.to_le_bytes()].concat();
    let mut encoder = zstd::Encoder::new(&mut bytes, 1).unwrap();
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap();
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_read(recording in recording()) {
        let bytes = recording.to_bytes().unwrap();
        prop_assert_eq!(Recording::from_bytes(&bytes).unwrap(), recording);
    }

    #[test]
    fn a_file_that_is_cut_or_changed_is_refused_or_says_the_same(
        recording in recording(),
        place: prop::sample::Index,
        bit in 0..8u8,
    ) {
        let bytes = recording.to_bytes().unwrap();
        prop_assert!(Recording::from_bytes(&bytes[..place.index(bytes.len())]).is_err());
        let mut changed = bytes.clone();
        changed[place.index(bytes.len())] ^= 1 << bit;
        // zstd has bits that mean nothing.
        prop_assert!(Recording::from_bytes(&changed).ok().is_none_or(|read| read == recording));
    }

    /// Where no checksum protects it: either it is refused, or it is one that could have been.
    #[test]
    fn hostile_content_is_refused_or_harmless(
        recording in recording(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut body = zstd::decode_all(&recording.to_bytes().unwrap()[12..]).unwrap();
        for (place, byte) in changes {
            let place = place.index(body.len());
            body[place] = byte;
        }
        if let Ok(read) = Recording::from_bytes(&framed(&body)) {
            prop_assert!(read.check().is_ok());
            prop_assert_eq!(summaries(&read, u64::MAX).len(), read.tenants.len() + 1);
        }
    }

    #[test]
    fn random_bytes_are_refused(body: Vec<u8>) {
        prop_assert!(Recording::from_bytes(&body).is_err());
        prop_assert!(Recording::from_bytes(&framed(&body)).is_err());
    }
}

/// A length that nobody can have is refused before room is made for it.
#[test]
fn a_claimed_length_takes_no_memory() {
    let huge = [&[0xff; 9][..], &[1]].concat();
    let text = Recording::from_bytes(&framed(&huge)).unwrap_err().to_string();
    assert!(text.starts_with("the recording is damaged: "), "{text}");
}

/// A file of 12 KB once took 1.2 GB of memory before it was found to be none.
#[test]
fn a_file_unpacks_to_a_bounded_multiple_of_its_size() {
    let bomb = framed(&vec![0; 128 << 20]);
    assert!(bomb.len() < 32 << 10, "{}", bomb.len());
    let text = Recording::from_bytes(&bomb).unwrap_err().to_string();
    assert!(text.contains("it unpacks to more than 4194304 bytes"), "{text}");
}

/// What precedes the events is checked before they are read, and so is how many there can be.
#[test]
fn more_events_than_its_time_has_room_for_are_refused() {
    let mut runner = TestRunner::deterministic();
    let mut recording = recording().new_tree(&mut runner).unwrap().current();
    recording.events.clear();
    let head = postcard::to_stdvec(&recording).unwrap();
    let count = postcard::to_stdvec(&3_000_000_000_000u64).unwrap();
    let text = Recording::from_bytes(&framed(&[head, count].concat())).unwrap_err().to_string();
    assert!(text.contains("3000000000000 events are more than"), "{text}");
}

/// One that packs to next to nothing is made larger, so that it can be read.
#[test]
fn a_very_regular_recording_is_read_as_well() {
    let mut runner = TestRunner::deterministic();
    let tree = std::iter::repeat_with(|| recording().new_tree(&mut runner).unwrap().current());
    let mut recording = tree.into_iter().find(|recording| !recording.events.is_empty()).unwrap();
    let what = recording.events[0].what;
    recording.events = (0..4_000_000).map(|step| Event { at_ns: step * 1_000, what }).collect();
    recording.duration_ns = 4_000_000_000;
    let bytes = recording.to_bytes().unwrap();
    assert_eq!(Recording::from_bytes(&bytes).unwrap(), recording);
}

#[test]
fn other_files_are_named_for_what_they_are() {
    assert!(matches!(Recording::from_bytes(b"[host]\ncpus = 4"), Err(FormatError::Foreign)));
    let newer = [b"ROTA-REC".as_slice(), &(VERSION + 1).to_le_bytes()].concat();
    let text = Recording::from_bytes(&newer).unwrap_err().to_string();
    assert_eq!(text, "the recording has version 2, and this is for version 1; use the rota that made it");
}
