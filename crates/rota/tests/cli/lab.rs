//! `rota lab` before it boots anything.

use super::*;

#[test]
fn a_scheduler_that_is_not_installed_is_told_with_its_mend_before_a_kernel_is_fetched() {
    let folder = Folder::new("");
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rota-lab/scenarios/demo.toml");
    let (_, err) = folder.expect(2, &["lab", scenario.to_str().unwrap(), "--policies", "rota,scx:nobody"]);
    assert_eq!(
        err,
        "rota: the policy scx:nobody: no program scx_nobody on PATH: install it (`cargo install --locked scx_nobody`, \
         then ~/.cargo/bin in PATH), or leave it out\n"
    );
}
