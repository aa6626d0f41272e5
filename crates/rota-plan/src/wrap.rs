//! Migrating vCPUs laid out in a block of time that repeats, so that none is on two CPUs at once.
//!
//! McNaughton's rule (1959) fills one CPU's block after another; a vCPU that is cut by a block's end goes on at the
//! start of the next CPU's, and since it has no more than a block of work the two pieces do not meet. Here the rule is
//! carried over to vCPUs that may not use every CPU: whatever each CPU does for each vCPU, as long as the two are
//! joined to a forest (of CPUs and vCPUs, with an edge where one serves the other), every edge is one stretch of time,
//! or two around a neighbour's. Gonzalez and Sahni's open shop schedules (1976) would do for any graph, but cut more.

/// So much of a vCPU's work, in ns of a block, on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Edge {
    pub vcpu: usize,
    pub cpu: usize,
    pub amount: u64,
}

/// A stretch of time [start, end) within the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub vcpu: usize,
    pub cpu: usize,
    pub start: u64,
    pub end: u64,
}

/// Who is joined to whom: the places of edges, by CPU and by vCPU.
struct Graph {
    of_cpu: Vec<Vec<usize>>,
    of_vcpu: Vec<Vec<usize>>,
}

impl Graph {
    fn new(edges: &[Edge]) -> Graph {
        let cpus = edges.iter().map(|edge| edge.cpu + 1).max().unwrap_or(0);
        let vcpus = edges.iter().map(|edge| edge.vcpu + 1).max().unwrap_or(0);
        Graph { of_cpu: vec![Vec::new(); cpus], of_vcpu: vec![Vec::new(); vcpus] }
    }

    fn join(&mut self, place: usize, edge: Edge) {
        self.of_cpu[edge.cpu].push(place);
        self.of_vcpu[edge.vcpu].push(place);
    }

    fn part(&mut self, place: usize, edge: Edge) {
        self.of_cpu[edge.cpu].retain(|&other| other != place);
        self.of_vcpu[edge.vcpu].retain(|&other| other != place);
    }

    /// The edges from a CPU to a vCPU, in the order of the way.
    fn path(&self, edges: &[Edge], cpu: usize, vcpu: usize) -> Option<Vec<usize>> {
        // By vCPU the edge by which it was reached, and the CPU's own way there.
        let mut reached: Vec<Option<usize>> = vec![None; self.of_vcpu.len()];
        let mut came_from: Vec<Option<usize>> = vec![None; self.of_cpu.len()];
        let mut open = vec![cpu];
        while let Some(at) = open.pop() {
            for &out in &self.of_cpu[at] {
                let over = edges[out].vcpu;
                if came_from[at] == Some(out) || reached[over].is_some() {
                    continue;
                }
                reached[over] = Some(out);
                for &on in &self.of_vcpu[over] {
                    let next = edges[on].cpu;
                    if on != out && next != cpu && came_from[next].is_none() {
                        came_from[next] = Some(on);
                        open.push(next);
                    }
                }
            }
        }
        let mut path = Vec::new();
        let mut last = reached[vcpu]?;
        loop {
            path.push(last);
            let Some(before) = came_from[edges[last].cpu] else { break };
            path.push(before);
            last = reached[edges[before].vcpu]?;
        }
        path.reverse();
        Some(path)
    }
}

/// The same sums for every CPU and every vCPU over edges without a cycle, at most one of each pair.
///
/// Around a cycle work is passed on, each of its vCPUs getting more from one CPU and less from the other, until an edge
/// has none left.
pub(crate) fn without_cycles(edges: Vec<Edge>) -> Vec<Edge> {
    let mut graph = Graph::new(&edges);
    let mut edges = edges;
    for new in 0..edges.len() {
        let Edge { vcpu, cpu, amount } = edges[new];
        if amount == 0 {
            continue;
        }
        let path = graph.path(&edges, cpu, vcpu).unwrap_or_default();
        let least = |edges: &[Edge], first: usize| {
            path.iter().skip(first).step_by(2).map(|&edge| edges[edge].amount).min()
        };
        // Every second edge loses, beginning with the path's first, and the new one wins; or the other way round.
        let losing = least(&edges, 0).unwrap_or(0);
        let winning = least(&edges, 1).map_or(amount, |least| least.min(amount));
        let new_wins = losing <= winning;
        let moved = if path.is_empty() { 0 } else { losing.min(winning) };
        for (nth, &place) in path.iter().chain([&new]).enumerate() {
            let wins = (nth % 2 == 1) == new_wins;
            let edge = &mut edges[place];
            edge.amount = if wins { edge.amount + moved } else { edge.amount - moved };
            if edge.amount == 0 && place != new {
                graph.part(place, *edge);
            }
        }
        if edges[new].amount > 0 {
            graph.join(new, edges[new]);
        }
    }
    edges.retain(|edge| edge.amount > 0);
    edges
}

/// What is come to over an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Vcpu,
    Cpu,
}

/// The edges of a forest in the order of a walk that begins, in each of its trees, at a CPU with fewest edges. It comes
/// to every CPU and every vCPU over one edge and leaves it over the others; vCPUs go on to CPUs with further edges
/// first.
pub(crate) fn walk(edges: &[Edge]) -> Vec<(Edge, To)> {
    let mut graph = Graph::new(edges);
    for (place, &edge) in edges.iter().enumerate() {
        graph.join(place, edge);
    }
    let mut roots: Vec<usize> =
        (0..graph.of_cpu.len()).filter(|&cpu| !graph.of_cpu[cpu].is_empty()).collect();
    roots.sort_by_key(|&cpu| graph.of_cpu[cpu].len());
    let mut steps = Vec::with_capacity(edges.len());
    let mut is_done = vec![false; edges.len()];
    let mut open = Vec::new();
    for root in roots {
        open.push(root);
        while let Some(cpu) = open.pop() {
            for &out in &graph.of_cpu[cpu] {
                if std::mem::replace(&mut is_done[out], true) {
                    continue;
                }
                steps.push((edges[out], To::Vcpu));
                let mut further: Vec<usize> = graph.of_vcpu[edges[out].vcpu].clone();
                further.retain(|&on| !std::mem::replace(&mut is_done[on], true));
                further.sort_by_key(|&on| graph.of_cpu[edges[on].cpu].len() == 1);
                steps.extend(further.iter().map(|&on| (edges[on], To::Cpu)));
                open.extend(further.iter().map(|&on| edges[on].cpu));
            }
        }
    }
    steps
}

/// When in a block of `block` ns each edge is served. No CPU and no vCPU has more than a block of work, and the edges
/// are a forest.
///
/// Whatever the [`walk`] comes to has nothing else laid out yet, so nothing is in the way of an edge but what the end
/// does that it comes from. A vCPU goes on to its further CPUs as early in the block as it can, a CPU takes its further
/// vCPUs as late as it can; so on a line of CPUs, which is what there is without affinity, nothing is cut by the end of
/// the block. A stretch is shorter than `least` only if no way around it was found.
pub(crate) fn lay_out(edges: &[Edge], block: u64, least: u64) -> Vec<Stretch> {
    let short = |stretches: &[Stretch]| stretches.iter().filter(|one| one.end - one.start < least).count();
    let tight = lay_out_with(edges, block, least, Holes::Any);
    if short(&tight) == 0 {
        return tight;
    }
    let holed = lay_out_with(edges, block, least, Holes::Usable);
    if short(&holed) < short(&tight) { holed } else { tight }
}

fn lay_out_with(edges: &[Edge], block: u64, least: u64, holes: Holes) -> Vec<Stretch> {
    let graph = Graph::new(edges);
    let mut cpus: Vec<Vec<(u64, u64)>> = vec![Vec::new(); graph.of_cpu.len()];
    let mut vcpus: Vec<Vec<(u64, u64)>> = vec![Vec::new(); graph.of_vcpu.len()];
    let mut stretches = Vec::with_capacity(edges.len());
    for (Edge { vcpu, cpu, amount }, to) in walk(edges) {
        let (busy, come_to, side) = match to {
            To::Vcpu => (&mut cpus[cpu], &mut vcpus[vcpu], Side::Late),
            To::Cpu => (&mut vcpus[vcpu], &mut cpus[cpu], Side::Early),
        };
        let got = fill(busy, block, amount, least, (side, holes));
        busy.extend(&got);
        stretches.extend(got.iter().map(|&(start, end)| Stretch { vcpu, cpu, start, end }));
        *come_to = got;
    }
    stretches
}

/// What may be left between stretches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holes {
    /// Whatever it is, so that stretches are few.
    Any,
    /// Nothing that is too short for a stretch: where a CPU is full, somebody has to fill it.
    Usable,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Early,
    Late,
}

/// `amount` ns of time in a block that is not `busy`, from that side. What does not fit into one gap leaves at least
/// `least` for the next.
fn fill(
    busy: &mut [(u64, u64)],
    block: u64,
    amount: u64,
    least: u64,
    (side, holes): (Side, Holes),
) -> Vec<(u64, u64)> {
    busy.sort_unstable();
    let starts = std::iter::once(0).chain(busy.iter().map(|&(_, end)| end));
    let ends = busy.iter().map(|&(start, _)| start).chain([block]);
    let mut gaps: Vec<(u64, u64)> = starts.zip(ends).filter(|(start, end)| start < end).collect();
    if side == Side::Late {
        gaps.reverse();
    }
    let mut left = amount;
    let mut later: u64 = gaps.iter().map(|(start, end)| end - start).sum();
    let mut got = Vec::new();
    for (start, end) in gaps {
        later -= end - start;
        let length = take(end - start, later, left, least, holes);
        if length > 0 {
            got.push(if side == Side::Late { (end - length, end) } else { (start, start + length) });
            left -= length;
        }
    }
    debug_assert_eq!(left, 0, "more than a block of work");
    got
}

/// How much of `left` goes into a gap, if the gaps after it are `later` ns in sum: the most that leaves nothing too
/// short, neither for the next gap nor, if holes have to be usable, of the gaps.
fn take(gap: u64, later: u64, left: u64, least: u64, holes: Holes) -> u64 {
    let is_short = |length: u64| 0 < length && length < least;
    let (fewest, most) = (left.saturating_sub(later), left.min(gap));
    let shorts = |taken: u64| {
        let rest = left - taken;
        let of_holes = [gap - taken, later - rest].into_iter().filter(|&hole| is_short(hole)).count();
        let of_stretches = [taken, rest].into_iter().filter(|&stretch| is_short(stretch)).count();
        of_stretches + if holes == Holes::Usable { of_holes } else { 0 }
    };
    // What is short grows to `least` or vanishes.
    let ends = [most, left.saturating_sub(least), gap.saturating_sub(least), fewest + least, fewest, 0];
    let possible = ends.into_iter().filter(|taken| (fewest..=most).contains(taken));
    possible.min_by_key(|&taken| (shorts(taken), std::cmp::Reverse(taken))).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const BLOCK: u64 = 1_000;

    /// Random work, at most a block for each CPU and each vCPU.
    fn work() -> impl Strategy<Value = Vec<Edge>> {
        prop::collection::vec((0..8_usize, 0..6_usize, 1..BLOCK), 0..40).prop_map(|wishes| {
            let mut edges: BTreeMap<(usize, usize), u64> = BTreeMap::new();
            let (mut vcpus, mut cpus) = ([BLOCK; 8], [BLOCK; 6]);
            for (vcpu, cpu, wish) in wishes {
                let amount = wish.min(vcpus[vcpu]).min(cpus[cpu]);
                vcpus[vcpu] -= amount;
                cpus[cpu] -= amount;
                *edges.entry((vcpu, cpu)).or_default() += amount;
            }
            let edge = |((vcpu, cpu), amount)| Edge { vcpu, cpu, amount };
            edges.into_iter().map(edge).filter(|edge| edge.amount > 0).collect()
        })
    }

    fn sums(edges: &[Edge], by: fn(&Edge) -> usize) -> BTreeMap<usize, u64> {
        let mut sums = BTreeMap::new();
        for edge in edges {
            *sums.entry(by(edge)).or_default() += edge.amount;
        }
        sums
    }

    /// Edges of a forest are fewer than its nodes, for every part of it: taking away leaves leaves nothing.
    fn is_forest(edges: &[Edge]) -> bool {
        let mut left = edges.to_vec();
        loop {
            let degree = |of: fn(&Edge) -> usize, node| left.iter().filter(|edge| of(edge) == node).count();
            let inner = |edge: &&Edge| degree(|e| e.vcpu, edge.vcpu) > 1 && degree(|e| e.cpu, edge.cpu) > 1;
            let kept: Vec<Edge> = left.iter().filter(inner).copied().collect();
            if kept.len() == left.len() {
                return left.is_empty();
            }
            left = kept;
        }
    }

    proptest! {
        #[test]
        fn a_forest_with_the_same_sums(edges in work()) {
            let forest = without_cycles(edges.clone());
            prop_assert!(is_forest(&forest), "{:?}", forest);
            prop_assert_eq!(sums(&edges, |edge| edge.vcpu), sums(&forest, |edge| edge.vcpu));
            prop_assert_eq!(sums(&edges, |edge| edge.cpu), sums(&forest, |edge| edge.cpu));
            for edge in &forest {
                prop_assert!(edges.iter().any(|old| (old.vcpu, old.cpu) == (edge.vcpu, edge.cpu)), "a new pair");
            }
        }

        #[test]
        fn nobody_is_in_two_places(edges in work(), least in 1..BLOCK / 4) {
            let forest = without_cycles(edges);
            let stretches = lay_out(&forest, BLOCK, least);
            for edge in &forest {
                let of = stretches.iter().filter(|stretch| (stretch.vcpu, stretch.cpu) == (edge.vcpu, edge.cpu));
                prop_assert_eq!(of.map(|stretch| stretch.end - stretch.start).sum::<u64>(), edge.amount);
            }
            for (place, one) in stretches.iter().enumerate() {
                prop_assert!(one.start < one.end && one.end <= BLOCK);
                for other in &stretches[..place] {
                    let related = one.vcpu == other.vcpu || one.cpu == other.cpu;
                    prop_assert!(!related || one.end <= other.start || other.end <= one.start, "{one:?} {other:?}");
                }
            }
        }
    }

    /// Three of a little more than two thirds each: 3 ns would be left over behind the gap.
    #[test]
    fn what_is_left_for_the_next_gap_is_worth_a_slot() {
        let fill = |end, least| fill(&mut [(300, end)], BLOCK, 303, least, (Side::Early, Holes::Any));
        assert_eq!(fill(600, 50), [(0, 253), (600, 650)]);
        assert_eq!(fill(600, 1), [(0, 300), (600, 603)]);
        assert_eq!(fill(980, 50), [(0, 300), (980, 983)]);
    }

    /// Three fill the second CPU. With 20 of the second in the first gap, the third would get 3 there and 17 elsewhere.
    #[test]
    fn what_is_left_for_the_next_vcpu_is_worth_a_slot() {
        let edge = |vcpu, cpu, amount| Edge { vcpu, cpu, amount };
        let edges = [edge(0, 0, 400), edge(1, 0, 23), edge(1, 1, 645), edge(2, 1, 335), edge(3, 1, 20)];
        let on_second = lay_out(&edges, BLOCK, 20).into_iter().filter(|stretch| stretch.cpu == 1);
        let on_second: Vec<_> = on_second.map(|one| (one.vcpu, one.start, one.end)).collect();
        assert_eq!(on_second, [(1, 0, 577), (1, 600, 668), (2, 688, 1_000), (2, 577, 600), (3, 668, 688)]);
    }

    /// McNaughton's layout: each vCPU that is cut is at the end of one block and at the start of the next.
    #[test]
    fn a_line_is_not_cut_by_the_block() {
        let edge = |vcpu, cpu, amount| Edge { vcpu, cpu, amount };
        let stretches =
            lay_out(&[edge(0, 0, 600), edge(0, 1, 200), edge(1, 1, 500), edge(1, 2, 300)], BLOCK, 1);
        let stretch = |vcpu, cpu, start, end| Stretch { vcpu, cpu, start, end };
        assert_eq!(
            stretches,
            [
                stretch(0, 0, 400, 1_000),
                stretch(0, 1, 0, 200),
                stretch(1, 1, 500, 1_000),
                stretch(1, 2, 0, 300)
            ]
        );
    }
}
