//! The same work for many things, on all CPUs that there are.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// `each` of all items, as many at a time as there are CPUs. What comes out is in the items' order.
///
/// # Panics
///
/// If `each` does.
pub fn map<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let take = || {
            let place = next.fetch_add(1, Ordering::Relaxed);
            Some((place, items.get(place)?))
        };
        while let Some((place, item)) = take() {
            let result = each(item);
            done.lock().expect("nobody panics while it holds this").push((place, result));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    thread::scope(|scope| (0..workers).for_each(|_| _ = scope.spawn(work)));
    let mut done = done.into_inner().expect("a panic went on past the scope");
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}
