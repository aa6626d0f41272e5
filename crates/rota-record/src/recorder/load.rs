//! The recorder's BPF program goes into the kernel, or it is said what the kernel lacks.

use std::sync::Mutex;

use anyhow::{Result, anyhow};
use libbpf_rs::{Object, ObjectBuilder, PrintLevel, set_print};

/// What libbpf has said. It takes a plain function, so this cannot be the caller's.
static SAID: Mutex<String> = Mutex::new(String::new());

/// Loads a program.
///
/// # Errors
///
/// If the kernel refuses it: with what is missing, as far as libbpf says that.
pub fn load(program: &[u8]) -> Result<Object> {
    let before = set_print(Some((PrintLevel::Warn, |_, text| {
        SAID.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push_str(&text);
    })));
    let loaded = ObjectBuilder::default().open_memory(program).and_then(|object| object.load());
    set_print(before);
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    loaded.map_err(|error| anyhow!(refusal(&said, &error.to_string())))
}

/// What the kernel lacks, and the mend.
fn refusal(said: &str, error: &str) -> String {
    let named = |before: &str| said.split_once(before)?.1.split('\'').next();
    if let Some(symbol) = named("address for kernel symbol '") {
        return format!(
            "the kernel lists no address of its variable {symbol}, which the recorder reads; boot one built with \
             CONFIG_KALLSYMS_ALL"
        );
    }
    if let Some(tracepoint) = named("failed to find kernel BTF type ID of '") {
        return format!(
            "the kernel has no tracepoint {tracepoint}, to which the recorder attaches; boot one built with \
             CONFIG_FTRACE"
        );
    }
    let first = said.lines().map(|line| line.trim_start_matches("libbpf: ")).find(|line| !line.is_empty());
    format!("the kernel refuses the recorder's BPF program: {}", first.unwrap_or(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel of 6.18 without CONFIG_KALLSYMS_ALL was told that it needs to be 6.12 or newer.
    #[test]
    fn what_is_missing_is_named() {
        let symbol = "libbpf: prog 'on_waking': BPF program load failed: -ENOENT\nlibbpf: prog 'on_waking': -- BEGIN \
                      PROG LOAD LOG --\nldimm64 failed to find the address for kernel symbol '__preempt_count'.\n";
        let refusal = |said: &str| refusal(said, "out of memory");
        assert!(refusal(symbol).contains("variable __preempt_count"), "{}", refusal(symbol));
        assert!(refusal(symbol).ends_with("CONFIG_KALLSYMS_ALL"));
        let tracepoint =
            "libbpf: prog 'on_raise': failed to find kernel BTF type ID of 'softirq_raise': -ESRCH\n";
        assert!(refusal(tracepoint).contains("no tracepoint softirq_raise"), "{}", refusal(tracepoint));
        let other = "\nlibbpf: failed to find valid kernel BTF\nlibbpf: failed to load object\n";
        let expected = "the kernel refuses the recorder's BPF program: failed to find valid kernel BTF";
        assert_eq!(refusal(other), expected);
        assert!(refusal("").ends_with(": out of memory"));
    }
}
