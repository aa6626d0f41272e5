//! By how much a program is slowed down by others, foretold from two short samples: one beside them, and one in which
//! they are held off. After Zhao, *Understanding and optimizing parallel performance in multi-tenant cloud*,
//! dissertation, UT Arlington 2019, section 3.4, with the two methods that it compares with.
//!
//! *Useful work* is what a thread would compute on an ideal machine: its time less what it waited for a CPU, for its
//! own threads, asleep or in a loop, and for memory. How fast that gets on is how fast the program gets on. Cycles and
//! misses for each instruction do not know that a thread which waits in a loop executes instructions, too.

use rota_model::Counts;
use thiserror::Error;

/// Useful work for each ns.
fn speed(counts: &Counts) -> f64 {
    counts.useful_ns() as f64 / counts.total_ns.max(1) as f64
}

/// How a slowdown is foretold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By useful work.
    UsefulWork,
    /// By cycles per instruction. All of the time counts as cycles, also what others have: the only reading by which
    /// the figure follows a program that merely gets less CPU time.
    Cpi,
    /// By misses of the last-level cache per thousand instructions.
    Mpki,
}

/// So few misses say nothing.
const MISSES_MIN: u64 = 1_000;

impl Method {
    /// How many times longer the program takes beside others, by the two samples. Nothing if one of them has too little
    /// of what the method looks at.
    pub fn slowdown(self, dedicated: &[Counts], beside: &[Counts]) -> Option<f64> {
        let cost = |parts: &[Counts]| {
            let sum = Counts::sum(parts);
            let (of, over, least) = match self {
                Method::UsefulWork => (sum.total_ns, sum.useful_ns(), 1),
                Method::Cpi => (sum.total_ns, sum.instructions, 1),
                Method::Mpki => (sum.misses, sum.instructions, MISSES_MIN),
            };
            (of >= least && over > 0).then(|| of as f64 / over as f64)
        };
        Some(cost(beside)? / cost(dedicated)?)
    }
}

/// A slowdown that is foretold by useful work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// How many times longer the program takes beside others.
    pub slowdown: f64,
    /// So much of it, up or down, it may be off by what is seen of the samples: half of the 95 % confidence interval.
    pub uncertainty: f64,
}

/// Why nothing is foretold.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum Refusal {
    /// A sample has fewer parts than two, or no useful work.
    #[error("a sample has too little in it; sample for longer")]
    TooLittle,
    /// The program did not go on evenly.
    #[error(
        "the samples are not representative: by their parts the slowdown may be off by {:.0} %; sample for longer, or \
         again", 100.0 * .0
    )]
    Uneven(f64),
}

/// The most that a prediction may be uncertain: the error of the method itself, as published.
pub const UNCERTAIN_MAX: f64 = 0.05;

/// Of a mean, how many standard errors the 95 % confidence interval reaches up or down, for ten parts (Student's t).
const T_95: f64 = 2.262;

/// Foretells a slowdown by useful work, from samples in parts of the same length.
///
/// # Errors
///
/// The samples do not allow it: see [`Refusal`].
pub fn predict(dedicated: &[Counts], beside: &[Counts]) -> Result<Prediction, Refusal> {
    let slowdown = Method::UsefulWork.slowdown(dedicated, beside).ok_or(Refusal::TooLittle)?;
    let errors = [dedicated, beside].map(relative_error);
    let [Some(of_dedicated), Some(of_beside)] = errors else { return Err(Refusal::TooLittle) };
    let uncertainty = T_95 * of_dedicated.hypot(of_beside);
    match uncertainty <= UNCERTAIN_MAX {
        true => Ok(Prediction { slowdown, uncertainty }),
        false => Err(Refusal::Uneven(uncertainty)),
    }
}

/// The standard error of the mean speed, as a part of it.
fn relative_error(parts: &[Counts]) -> Option<f64> {
    let count = parts.len() as f64;
    let mean = parts.iter().map(speed).sum::<f64>() / count;
    if parts.len() < 2 || mean <= 0.0 {
        return None;
    }
    let squares: f64 = parts.iter().map(|part| (speed(part) - mean).powi(2)).sum();
    Some((squares / (count - 1.0) / count).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a second of its threads' time: waits for a CPU, in a loop, and for memory; all in ms.
    fn second(steal: u64, spin: u64, memory: u64, misses: u64) -> Counts {
        let ms = 1_000_000;
        let instructions = (1_000 - steal - memory) * ms;
        Counts {
            total_ns: 1_000 * ms,
            steal_ns: steal * ms,
            sync_ns: spin * ms,
            memory_ns: memory * ms,
            instructions,
            misses,
        }
    }

    #[test]
    fn useful_work_knows_who_spins() {
        let (dedicated, beside) = ([second(0, 100, 400, 5_000); 10], [second(500, 200, 50, 2_000); 10]);
        // 500 ms of useful work each second, and 250 ms beside others.
        let predicted = predict(&dedicated, &beside).unwrap();
        assert!((predicted.slowdown - 2.0).abs() < 1e-9 && predicted.uncertainty < 1e-9, "{predicted:?}");
        // 600 and 450 ms of instructions, 100 and 200 of them in loops.
        let by = |method: Method| method.slowdown(&dedicated, &beside).unwrap();
        assert!((by(Method::Cpi) - 600.0 / 450.0).abs() < 1e-9);
        assert!((by(Method::Mpki) - (2.0 / 450.0) / (5.0 / 600.0)).abs() < 1e-9);
        assert_eq!(Method::Mpki.slowdown(&[second(0, 0, 0, 0)], &beside), None, "no miss, no rate");
    }

    #[test]
    fn what_is_not_representative_is_refused() {
        let even = [second(0, 0, 0, 0); 10];
        let mut stages = [second(500, 0, 0, 0); 10];
        stages[..5].fill(second(700, 0, 0, 0));
        let Err(Refusal::Uneven(uncertain)) = predict(&even, &stages) else { panic!("two stages") };
        assert!(uncertain > 0.15, "{uncertain}");
        assert!(predict(&even, &stages).unwrap_err().to_string().contains("may be off by 19 %"));
        let mut noisy = [second(500, 0, 0, 0); 10];
        noisy[3] = second(510, 0, 0, 0);
        let predicted = predict(&even, &noisy).unwrap();
        assert!(predicted.uncertainty > 0.004 && predicted.uncertainty < 0.006, "{predicted:?}");
        assert_eq!(predict(&even, &[second(1_000, 0, 0, 0); 10]), Err(Refusal::TooLittle));
        assert_eq!(predict(&even[..1], &even), Err(Refusal::TooLittle));
    }
}
