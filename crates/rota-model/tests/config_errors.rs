//! Bad configurations, and exactly what is said of each.

use rota_model::Topology;
use rota_model::config::{Source, parse};

/// `config_errors.txt` holds one case a paragraph: the text of `rota.toml`, further files behind lines like
/// `--- tenants.d/a.toml`, and behind `> ` the errors that parsing them has to give on a machine of four CPUs.
#[test]
fn every_mistake_is_named_with_place_and_mend() {
    let machine = Topology::flat(&(0..4).collect());
    let mut cases = 0;
    for case in include_str!("config_errors.txt").split("\n\n").map(str::trim) {
        let mut sources = vec![Source { path: "rota.toml".to_owned(), text: String::new() }];
        let mut expected = Vec::new();
        for line in case.lines() {
            if let Some(error) = line.strip_prefix("> ") {
                expected.push(error);
            } else if let Some(path) = line.strip_prefix("--- ") {
                sources.push(Source { path: path.to_owned(), text: String::new() });
            } else {
                let text = &mut sources.last_mut().expect("there is one from the start").text;
                text.push_str(line);
                text.push('\n');
            }
        }
        assert!(!expected.is_empty(), "a case without errors:\n{case}");
        match parse(&sources, &machine) {
            Ok(model) => panic!("accepted as {model:?}:\n{case}"),
            Err(errors) => assert_eq!(errors.to_string(), expected.join("\n"), "for:\n{case}"),
        }
        cases += 1;
    }
    assert!(cases >= 70, "only {cases} cases were read");
}
