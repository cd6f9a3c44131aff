//! The example file: it parses, names every key, and says what the defaults are.

use super::*;

const EXAMPLE: &str = include_str!("../../../config/mountie.example.toml");

#[test]
fn the_example_parses() {
    let config = accepted(EXAMPLE);
    assert_eq!(config.policy.volumes.len(), 3);
    assert_eq!(
        config.policy.volumes[0].sentinel.as_ref().unwrap().content.as_deref(),
        Some(&b"models-7f3a"[..])
    );
}

#[test]
fn the_example_shows_the_defaults() {
    let config = accepted(EXAMPLE);
    assert_eq!(config.agent, AgentConfig::default());
    assert_eq!(config.kernel, KernelConfig::default());
    assert_eq!(config.policy.defaults, Policy::default().defaults);
    assert_eq!(config.policy.discovery.enabled, Policy::default().discovery.enabled);
    let repair = &config.policy.volumes[0].repair;
    // Without the key it is less than the example has, and no value of the key says that.
    let consumers = agent_core::volume::Reach::All;
    assert_eq!(*repair, agent_core::volume::Repair { consumers, ..Default::default() });
}

/// Keys that an unknown key at each place is told are accepted; so this list is what the reader reads.
fn accepted_keys() -> Vec<String> {
    let places = [
        "x = 1",
        "[agent]\nx = 1",
        "[kernel]\nx = 1",
        "[defaults]\nx = 1",
        "[discovery]\nx = 1",
        "[discovery]\ninclude = [{ x = 1, fstype = \"a\" }]",
        "[[volume]]\nname = \"v\"\nmountpoint = \"/v\"\nx = 1",
        "[[volume]]\nname = \"v\"\nmountpoint = \"/v\"\nsentinel = { path = \"p\", x = 1 }",
        "[[volume]]\nname = \"v\"\nmountpoint = \"/v\"\nidentity = { x = 1 }",
        "[[volume]]\nname = \"v\"\nmountpoint = \"/v\"\n[volume.repair]\nx = 1",
    ];
    let mut keys = Vec::new();
    for place in places {
        let found = error(place);
        let list = found.split("accepted here: ").nth(1).expect("an unknown key fails");
        let list = list.rsplit_once(" (line").expect("a line").0;
        keys.extend(list.split(", ").map(str::to_owned));
    }
    keys
}

#[test]
fn the_example_names_every_key() {
    let keys = accepted_keys();
    assert!(keys.len() > 35, "{keys:?}");
    for key in keys {
        let named = [format!("{key} = "), format!("[{key}]"), format!("[[{key}]]"), format!(".{key}]")];
        assert!(named.iter().any(|text| EXAMPLE.contains(text)), "{key} is not in the example");
    }
}

#[test]
fn the_example_with_an_unknown_key_fails() {
    assert!(error(&format!("nonsense = 1\n{EXAMPLE}")).starts_with("nonsense: unknown key"));
}
