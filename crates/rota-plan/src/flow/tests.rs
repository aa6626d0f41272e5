use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::HYPERPERIOD_NS;

const CAPACITY: u64 = 12;

/// Load and CPUs of an item.
type Wanted = (u64, Option<Vec<usize>>);

fn items(wanted: &[Wanted]) -> Vec<Item<'_>> {
    wanted.iter().map(|(load, allowed)| Item { load: *load, allowed: allowed.as_deref() }).collect()
}

fn short(wanted: &[Wanted], cpus: usize) -> Shortage {
    assign(&items(wanted), cpus, CAPACITY, None).unwrap_err()
}

/// Hall's condition, for every set of items: together they want no more than the CPUs have that any of them may use.
fn divided_fit(items: &[Item], rooms: &[u64]) -> bool {
    (1..1_u32 << items.len()).all(|set| {
        let members: Vec<&Item> =
            (0..items.len()).filter(|at| set >> at & 1 == 1).map(|at| &items[at]).collect();
        let is_allowed =
            |cpu: &usize| members.iter().any(|item| item.allowed.is_none_or(|all| all.contains(cpu)));
        let given: u64 = (0..rooms.len()).filter(is_allowed).map(|cpu| rooms[cpu]).sum();
        members.iter().map(|item| item.load_of(CAPACITY)).sum::<u64>() <= given
    })
}

/// Whether there is a choice of whole CPUs that leaves the others room: every choice is tried.
fn fit(wholes: &[Item], others: &[Item], rooms: &mut [u64]) -> bool {
    let Some((first, rest)) = wholes.split_first() else { return divided_fit(others, rooms) };
    (0..rooms.len()).any(|cpu| {
        let free = rooms[cpu] == CAPACITY && first.allowed.is_none_or(|all| all.contains(&cpu));
        free && {
            rooms[cpu] = 0;
            let found = fit(rest, others, rooms);
            rooms[cpu] = CAPACITY;
            found
        }
    })
}

fn is_kept(items: &[Item], cpus: usize, parts: &[Part]) -> Result<(), TestCaseError> {
    let mut given = vec![0; cpus];
    for (place, item) in items.iter().enumerate() {
        let mine: Vec<&Part> = parts.iter().filter(|part| part.item == place).collect();
        prop_assert_eq!(mine.iter().map(|part| part.load).sum::<u64>(), item.load_of(CAPACITY));
        prop_assert!(!item.is_whole() || mine.len() == 1);
        prop_assert!(
            mine.iter().all(|part| part.load > 0 && item.allowed.is_none_or(|all| all.contains(&part.cpu)))
        );
        mine.iter().for_each(|part| given[part.cpu] += part.load);
    }
    prop_assert!(given.iter().all(|&given| given <= CAPACITY));
    prop_assert!(parts.is_sorted_by_key(|part| (part.item, part.cpu)));
    Ok(())
}

fn hosts() -> impl Strategy<Value = (usize, Vec<Wanted>)> {
    (1..=5_usize).prop_flat_map(|cpus| {
        let load = prop_oneof![4 => 1..=CAPACITY, 1 => Just(HYPERPERIOD_NS)];
        let allowed = option::weighted(0.8, subsequence((0..cpus).collect::<Vec<_>>(), 1..=cpus));
        (Just(cpus), vec((load, allowed), 0..=8))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// What fits is assigned, and nothing else; and a bottleneck is one.
    #[test]
    fn as_hall_says((cpus, wanted) in hosts()) {
        let items = items(&wanted);
        let (wholes, others): (Vec<Item>, Vec<Item>) = items.iter().partition(|item| item.is_whole());
        let feasible = fit(&wholes, &others, &mut vec![CAPACITY; cpus]);
        match assign(&items, cpus, CAPACITY, None) {
            Ok(parts) => {
                prop_assert!(feasible);
                is_kept(&items, cpus, &parts)?;
            }
            Err(Shortage::Bottleneck { items: named, cpus: short }) => {
                prop_assert!(!feasible);
                let all: Vec<usize> = (0..cpus).collect();
                let inside = |item: usize| items[item].allowed.unwrap_or(&all).iter().all(|cpu| short.contains(cpu));
                prop_assert!(named.iter().all(|&item| inside(item)));
                let needed: u64 = named.iter().map(|&item| items[item].load_of(CAPACITY)).sum();
                prop_assert!(needed > short.len() as u64 * CAPACITY);
            }
            Err(Shortage::Whole { item }) => {
                prop_assert!(!feasible && items[item].is_whole());
                prop_assert!(divided_fit(&items, &vec![CAPACITY; cpus]), "there is a bottleneck to tell of");
            }
        }
    }
}

#[test]
fn whole_items_stay_on_one_cpu_where_they_can() {
    let wanted = [(6, None), (6, None), (7, Some(vec![0, 1])), (5, Some(vec![0, 1])), (12, None)];
    let parts = assign(&items(&wanted), 3, CAPACITY, None).unwrap();
    assert_eq!(parts.len(), wanted.len(), "{parts:?}");
    // Three of two thirds on two CPUs take one cut.
    let parts = assign(&items(&[(8, None), (8, None), (8, None)]), 2, CAPACITY, None).unwrap();
    assert_eq!(parts.len(), 4, "{parts:?}");
}

#[test]
fn the_smallest_bottleneck_is_told() {
    let pair = |load, cpus: [usize; 2]| (load, Some(cpus.to_vec()));
    let two =
        [pair(9, [0, 1]), pair(9, [0, 1]), pair(9, [0, 1]), pair(10, [2, 3]), (20, Some(vec![0, 1, 2, 3]))];
    assert_eq!(short(&two, 4), Shortage::Bottleneck { items: vec![0, 1, 2], cpus: vec![0, 1] });
    // A pinned one counts where it is pinned.
    let pinned = [(5, Some(vec![0])), (10, Some(vec![0, 1])), (10, Some(vec![0, 1])), (1, None)];
    assert_eq!(short(&pinned, 3), Shortage::Bottleneck { items: vec![0, 1, 2], cpus: vec![0, 1] });
    // No single list is short, but three in a ring are.
    let ring = [pair(11, [0, 1]), pair(11, [1, 2]), pair(11, [0, 2]), (10, None), (4, None)];
    let Shortage::Bottleneck { items: named, cpus } = short(&ring[..], 3) else { panic!("no bottleneck") };
    assert_eq!((named, cpus), (vec![0, 1, 2, 3, 4], vec![0, 1, 2]));
    assert_eq!(
        short(&[(7, Some(vec![1])), (6, Some(vec![1]))], 2),
        Shortage::Bottleneck { items: vec![0, 1], cpus: vec![1] }
    );
}

#[test]
fn whole_cpus_are_chosen_away_from_those_that_need_them() {
    let whole = HYPERPERIOD_NS;
    // CPU 0 is the only one that the second may use besides 1, which is half full already.
    let wanted = [(whole, Some(vec![0, 2])), (8, Some(vec![0, 1])), (8, Some(vec![0, 1]))];
    assert_eq!(whole_cpus(&items(&wanted), 3, CAPACITY), Ok(vec![(0, 2)]));
    // Four want one of the six pairs of four CPUs covered each; only one CPU can be spared.
    let covering = |wholes: usize| {
        let pairs = (0..4).flat_map(|a| (a + 1..4).map(move |b| (1, Some(vec![a, b]))));
        pairs.chain(std::iter::repeat_n((whole, None), wholes)).collect::<Vec<Wanted>>()
    };
    assert!(assign(&items(&covering(1)), 4, CAPACITY, None).is_ok());
    assert_eq!(short(&covering(2), 4), Shortage::Whole { item: 7 });
    // On every CPU there is somebody.
    let everywhere = [(1, Some(vec![0])), (1, Some(vec![1])), (whole, None)];
    assert_eq!(short(&everywhere, 2), Shortage::Whole { item: 2 });
}
