use std::fs;
use std::os::unix::fs::chown;

use super::*;

#[test]
fn the_mount_point_is_found_on_pure_and_on_mixed_hosts() {
    let mixed = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                 cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
    assert_eq!(mount_point_in(mixed), Some(PathBuf::from("/sys/fs/cgroup/unified")));
    assert_eq!(mount_point_in("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), Some("/sys/fs/cgroup".into()));
    assert_eq!(mount_point_in("proc /proc proc rw 0 0\n"), None);
}

fn tree_paths(tree: &Tree) -> Vec<&str> {
    tree.cgroups().keys().map(|path| path.to_str().unwrap()).collect()
}

#[test]
fn the_tree_follows_creation_and_removal() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    fs::write(folder.path().join("a/cgroup.procs"), "").unwrap();
    let mut tree = Tree::open(folder.path(), Reach::All).unwrap();
    assert_eq!(tree_paths(&tree), ["a", "a/b"]);
    assert!(!tree.refresh());

    fs::create_dir_all(folder.path().join("a/c/d")).unwrap();
    assert!(tree.refresh());
    assert_eq!(tree_paths(&tree), ["a", "a/b", "a/c", "a/c/d"]);
    fs::create_dir(folder.path().join("a/c/d/e")).unwrap();
    assert!(tree.refresh());
    fs::remove_dir_all(folder.path().join("a/c")).unwrap();
    assert!(tree.refresh());
    assert_eq!(tree_paths(&tree), ["a", "a/b"]);

    let ino = |path| fs::metadata(folder.path().join(path)).unwrap().ino();
    assert_eq!(tree.cgroups()[Path::new("a/b")].id, ino("a/b"));
    assert!(!tree.rescan());
}

#[test]
fn a_directory_made_anew_is_another_cgroup() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a")).unwrap();
    let mut tree = Tree::open(folder.path(), Reach::tenants()).unwrap();
    fs::create_dir(folder.path().join("keeps-the-inode-number-from-being-reused")).unwrap();
    fs::rename(folder.path().join("a"), folder.path().join("old")).unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    assert!(tree.refresh());
    let ino = fs::metadata(folder.path().join("a")).unwrap().ino();
    assert_eq!(tree.cgroups()[Path::new("a")].id, ino);
}

#[test]
fn a_missing_root_is_an_error() {
    assert!(Tree::open("/nonexistent/rota", Reach::tenants()).is_err());
}

/// What a container, a unit or a user makes below its own cgroup is neither read nor watched.
#[test]
fn nothing_is_read_or_watched_below_a_tenant() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a.slice/web.service/x.slice/y")).unwrap();
    let mut tree = Tree::open(folder.path(), Reach::tenants()).unwrap();
    assert_eq!(tree_paths(&tree), ["a.slice", "a.slice/web.service"]);
    assert_eq!(tree.watched.len(), 2, "the root and the slice");
    fs::create_dir(folder.path().join("a.slice/web.service/more")).unwrap();
    assert!(!tree.refresh());
    assert!(!tree.rescan());
}

/// Twenty-two nested cgroups of a user's once ended the daemon: their path is longer than one can be.
#[test]
fn cgroups_deeper_than_a_path_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let name = "r".repeat(200);
    // From the innermost out: each is made alone, and moved into the next.
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    for _ in 0..30 {
        let outer = folder.path().join("outer");
        fs::create_dir(&outer).unwrap();
        fs::rename(&inner, outer.join(&name)).unwrap();
        fs::rename(&outer, &inner).unwrap();
    }
    for reach in [Reach::All, Reach::tenants()] {
        let mut tree = Tree::open(folder.path(), reach).unwrap();
        assert!(tree.cgroups().contains_key(Path::new("inner")));
        assert!(!tree.rescan());
        let notes = tree.notes();
        assert!(notes.len() <= 1, "{notes:?}");
    }
    // It must be taken apart as it was made, or nobody can remove it.
    while fs::rename(inner.join(&name), folder.path().join("next")).is_ok() {
        fs::remove_dir(&inner).unwrap();
        fs::rename(folder.path().join("next"), &inner).unwrap();
    }
}

#[test]
fn named_paths_are_followed_whoever_made_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("x.service/a/other")).unwrap();
    let mut tree = Tree::open(folder.path(), Reach::tenants()).unwrap();
    assert!(tree.want(BTreeSet::from(["x.service/a/b".into()])));
    assert_eq!(tree_paths(&tree), ["x.service", "x.service/a"]);
    fs::create_dir(folder.path().join("x.service/a/b")).unwrap();
    fs::create_dir(folder.path().join("x.service/a/c")).unwrap();
    assert!(tree.refresh());
    assert_eq!(tree_paths(&tree), ["x.service", "x.service/a", "x.service/a/b"]);
    assert!(!tree.cgroups()[Path::new("x.service/a/b")].of_host);
    assert!(!tree.want(BTreeSet::from(["x.service/a/b".into()])));
}

#[test]
fn a_delegated_slice_is_not_the_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let slice = folder.path().join("user.slice");
    fs::create_dir_all(slice.join("docker-0.scope")).unwrap();
    if chown(&slice, Some(65_534), None).is_err() {
        println!("SKIPPED: a_delegated_slice_is_not_the_hosts: only root gives a directory away");
        return;
    }
    let tree = Tree::open(folder.path(), Reach::tenants()).unwrap();
    assert_eq!(tree_paths(&tree), ["user.slice"]);
}

/// A few thousand events between two turns are one change of each directory, and a bounded part of them a turn.
#[test]
fn a_turn_takes_in_a_bounded_part_of_the_events() {
    let folder = tempfile::tempdir().unwrap();
    let mut tree = Tree::open(folder.path(), Reach::tenants()).unwrap();
    for number in 0..4_000 {
        fs::create_dir(folder.path().join(format!("{number:0100}"))).unwrap();
    }
    assert!(tree.refresh());
    let first = tree.cgroups().len();
    assert!(first > 0 && first < 4_000, "{first}");
    while tree.refresh() {}
    assert_eq!(tree.cgroups().len(), 4_000);
}

#[test]
fn users_units_are_looked_up_without_a_watch_and_a_number_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let manager = folder.path().join("user.slice/user-1000.slice/user@1000.service");
    for number in 0..400 {
        fs::create_dir_all(manager.join(format!("app.slice/{number}.scope"))).unwrap();
    }
    let tree = Tree::open(folder.path(), Reach::tenants()).unwrap();
    assert_eq!(tree.cgroups().len(), 3);
    assert!((200..=256).contains(&tree.users_units().len()), "{}", tree.users_units().len());
    assert_eq!(tree.watched.len(), 3);
}
