//! Numbers of things, each of its own type.

/// A CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

/// A task. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// What is promised something, or compared with others: a tenant's vCPU, or all threads of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u32);

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

macro_rules! index {
    ($($name:ident)*) => {
        $(impl $name {
            /// The number as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        })*
    };
}

index! { CpuId TaskId UnitId DeviceId }
