//! Several schedulers of one kind in one thread, which has each of its variables once: what these hold is changed for
//! what another scheduler has, whenever that is called.

use std::cell::RefCell;
use std::ptr;
use std::rc::Rc;

use crate::rota::native::{self, Code, NativeMap};

/// One of them.
#[derive(Debug)]
pub struct Instance {
    /// Addresses and sizes of this thread's variables.
    places: Vec<(*mut u8, usize)>,
    /// What they hold while another scheduler has them.
    kept: Kept,
}

/// Bytes of all variables, one after the other.
type Kept = Rc<RefCell<Vec<u8>>>;

/// Whose variables this thread's are, and what they held at first.
struct Thread {
    holder: Kept,
    at_first: Vec<u8>,
}

thread_local! {
    static THREAD: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

impl Instance {
    /// A scheduler as nobody has used it yet. The variables are its own from now on, until another one enters.
    ///
    /// A thread has schedulers of one kind.
    pub fn new(code: &Code) -> Instance {
        let variables = native::variables(code).into_iter().filter(|(name, ..)| *name != "native_moment");
        let variables = variables.map(|(_, address, size)| (address.cast(), size as usize));
        let maps = native::maps(code).into_iter();
        let maps = maps.map(|definition| (definition.map.cast(), size_of::<NativeMap>()));
        let places: Vec<(*mut u8, usize)> = variables.chain(maps).collect();
        let kept = THREAD.with_borrow_mut(|thread| {
            let at_first = thread.as_ref().map_or_else(|| read(&places), |thread| thread.at_first.clone());
            let kept = Kept::new(RefCell::new(at_first.clone()));
            if thread.is_none() {
                *thread = Some(Thread { holder: kept.clone(), at_first });
            }
            kept
        });
        let instance = Instance { places, kept };
        instance.enter();
        instance
    }

    /// The variables are this scheduler's from now on.
    pub fn enter(&self) {
        THREAD.with_borrow_mut(|thread| {
            let Some(thread) = thread.as_mut().filter(|thread| !Rc::ptr_eq(&thread.holder, &self.kept))
            else {
                return;
            };
            *thread.holder.borrow_mut() = read(&self.places);
            let kept = self.kept.borrow();
            let mut rest = kept.as_slice();
            for &(address, size) in &self.places {
                let (own, behind) = rest.split_at(size);
                rest = behind;
                // SAFETY: a variable of this thread's of this size, of which there are no references in Rust.
                unsafe { ptr::copy_nonoverlapping(own.as_ptr(), address, size) };
            }
            thread.holder = self.kept.clone();
        });
    }
}

fn read(places: &[(*mut u8, usize)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(places.iter().map(|(_, size)| size).sum());
    for &(address, size) in places {
        // SAFETY: as in `enter`.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(address, size) });
    }
    bytes
}
