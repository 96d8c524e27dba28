//! The house rules for every file.

use std::fs;
use std::path::{Path, PathBuf};

/// Every file under these folders whose name ends so.
pub(crate) fn files(folders: &[&str], ending: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn every_rust_file_says_first_what_it_holds() {
    let silent: Vec<PathBuf> = files(
        &[
            "src",
            "connectors/src",
            "core/src",
            "engine/src",
            "schedule",
            "store/src",
            "lab",
            "testkit",
            "tests",
        ],
        ".rs",
    )
    .into_iter()
    .filter(|path| {
        !fs::read_to_string(path).unwrap().lines().next().unwrap_or("").starts_with("//! ")
    })
    .collect();
    assert!(silent.is_empty(), "without a first line that starts with `//! `: {silent:#?}");
}

/// CONTRIBUTING.md asks for 100 to 250 lines. The limit leaves room for one noun that is larger.
#[test]
fn no_rust_file_outgrows_a_reader() {
    const MAX_LINES: usize = 400;
    let long: Vec<(PathBuf, usize)> = files(
        &[
            "src",
            "connectors/src",
            "core/src",
            "engine/src",
            "schedule/src",
            "store/src",
            "lab/src",
            "testkit/src",
        ],
        ".rs",
    )
    .into_iter()
    .filter(|path| !path.ends_with("tests.rs"))
    .map(|path| (path.clone(), code_lines(&fs::read_to_string(path).unwrap())))
    .filter(|(_, lines)| *lines > MAX_LINES)
    .collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines before their tests: {long:#?}");
}

/// Lines up to the tests.
fn code_lines(text: &str) -> usize {
    text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

/// One file decides what follows a script that Redis does not know; another one makes the class of
/// the server's word.
#[test]
fn a_missing_script_is_repaired_in_one_place() {
    let names = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap().to_lowercase();
        text.split("#[cfg(test)]").next().unwrap_or_default().contains("noscript")
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("store/src/store");
    let mut naming: Vec<PathBuf> = files(&["store/src/store"], ".rs");
    naming.retain(names);
    naming.sort();
    let known = ["call/repairs.rs", "error/class.rs", "error.rs"];
    assert_eq!(naming, known.map(|path| root.join(path)));
}

fn toml(path: &str) -> toml::Table {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap().parse().unwrap()
}

/// `make fuzz` builds with `--locked`, outside the workspace.
#[test]
fn the_lock_file_of_the_fuzzer_knows_what_dwell_needs() {
    let lock = toml("fuzz/driver/Cargo.lock");
    for folder in [".", "connectors", "core", "store", "fuzz"] {
        let manifest = toml(&format!("{folder}/Cargo.toml"));
        let name = &manifest["package"]["name"];
        let package = lock["package"]
            .as_array()
            .unwrap()
            .iter()
            .find(|package| &package["name"] == name)
            .unwrap();
        // A name, and a version where there are several of it.
        let known: Vec<&str> = package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .map(|known| known.as_str().unwrap().split(' ').next().unwrap())
            .collect();
        for (needed, how) in manifest["dependencies"].as_table().unwrap() {
            let is_optional = how.get("optional").and_then(toml::Value::as_bool).unwrap_or(false);
            assert!(
                is_optional || known.contains(&needed.as_str()),
                "{name} needs {needed}: run cargo update --workspace in fuzz/driver"
            );
        }
    }
}

/// The measurements hold for an allocator that is built so (docs/decisions/0013), and Docker must
/// get the file.
#[test]
fn the_allocator_is_built_with_two_arenas() {
    let config = toml(".cargo/config.toml");
    let built_with = config["env"]["JEMALLOC_SYS_WITH_MALLOC_CONF"].as_str().unwrap();
    let options: Vec<&str> = built_with.split(',').collect();
    for option in ["background_thread:true", "dirty_decay_ms:500", "narenas:2"] {
        assert!(options.contains(&option), "{option}: {built_with}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sent = fs::read_to_string(root.join(".dockerignore")).unwrap();
    assert!(sent.lines().any(|line| line == "!.cargo"), "{sent}");
}

/// The images that a file names, without what stands around them.
fn images(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim();
        let image = line
            .strip_prefix("FROM ")
            .or_else(|| line.strip_prefix("image: "))
            .or_else(|| line.strip_prefix("- image: "));
        let image = image
            .or_else(|| line.strip_prefix("ARG ")?.split_once("_IMAGE=").map(|(_, image)| image))?;
        let image = image.split(" AS ").next()?.split(" #").next()?.trim_matches('"');
        // A variable of its own, or one with a default.
        let image = image
            .strip_prefix("${")
            .map_or(Some(image), |rest| Some(rest.trim_end_matches('}').split_once(":-")?.1))?;
        Some(image)
    })
}

/// `latest` is another image each day. A tag may move too: only a digest does not.
#[test]
fn every_image_is_pinned() {
    // Ours, and an example.
    const TAGGED_IMAGES: [&str; 2] = ["dwell", "orders"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = vec![root.join("Dockerfile"), root.join("docker-compose.yml")];
    all.extend(
        files(&["deploy"], ".yaml")
            .into_iter()
            .chain(files(&["deploy", "docs"], ".yml"))
            .chain(files(&["docs"], ".md")),
    );
    let mut count = 0;
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains(":latest") && !text.contains("# syntax="),
            "{}: an image that changes",
            path.display()
        );
        for image in images(&text) {
            count += 1;
            let (name, digest) =
                image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
            let (name, tag) = name.rsplit_once(':').unwrap_or((name, ""));
            let is_version =
                tag.starts_with(|c: char| c.is_ascii_digit()) || tag.starts_with("bookworm-2");
            assert!(is_version, "{}: {image} has no version", path.display());
            let is_digest = digest.and_then(|digest| digest.strip_prefix("sha256:"));
            let is_digest = is_digest.is_some_and(|hex| {
                hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            assert!(
                is_digest || (digest.is_none() && TAGGED_IMAGES.contains(&name)),
                "{}: {image} has no digest",
                path.display()
            );
        }
    }
    assert!(count >= 9, "{count} images were found");
}

/// What installs Dwell in Kubernetes installs the version that it stands beside.
#[test]
fn deploy_names_the_version_of_dwell() {
    let cargo = toml("Cargo.toml");
    let version = cargo["workspace"]["package"]["version"].as_str().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    for (file, line) in [
        ("helm/dwell/Chart.yaml", format!("version: {version}")),
        ("helm/dwell/Chart.yaml", format!("appVersion: \"{version}\"")),
        ("kubernetes/sidecar.yaml", format!("image: dwell:{version}")),
        ("kustomize/overlays/deployment/deployment.yaml", format!("image: dwell:{version}")),
        ("kustomize/overlays/deployment/kustomization.yaml", format!("newTag: {version}")),
        ("kustomize/overlays/sidecar-example/sidecar.yaml", format!("image: dwell:{version}")),
        ("kustomize/overlays/sidecar-example/kustomization.yaml", format!("newTag: {version}")),
    ] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        assert!(text.lines().any(|it| it.trim() == line), "deploy/{file} lacks `{line}`");
    }
    // Of the example's two versions the one of the dependency is Dwell's.
    let example = fs::read_to_string(root.join("helm/sidecar-example/Chart.yaml")).unwrap();
    let (_, dependency) = example.split_once("- name: dwell\n").unwrap();
    assert!(dependency.trim_start().starts_with(&format!("version: {version}\n")), "{example}");
}

/// The chart's alerts are those of Prometheus: a link, which Helm follows, and no copy.
#[test]
fn the_chart_has_the_alerts_of_prometheus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let alerts = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(alerts("helm/dwell/files/alerts.yml"), alerts("prometheus/alerts.yml"));
}

/// Packages point one way: the store knows no broker, connectors no Redis, and nothing that ships
/// needs the laboratory.
#[test]
fn packages_name_only_what_is_beneath_them() {
    let allowed: [(&str, &[&str]); 6] = [
        ("core", &[]),
        ("schedule", &["dwell-core"]),
        ("store", &["dwell-core", "dwell-schedule"]),
        ("engine", &["dwell-core", "dwell-schedule", "dwell-store"]),
        ("connectors", &["dwell-core"]),
        (".", &["dwell-connectors", "dwell-schedule", "dwell-store"]),
    ];
    for (folder, beneath) in allowed {
        let manifest = toml(&format!("{folder}/Cargo.toml"));
        let names = manifest["dependencies"].as_table().unwrap().keys();
        let ours: Vec<&String> = names.filter(|name| name.starts_with("dwell")).collect();
        assert_eq!(ours, beneath, "{folder}/Cargo.toml");
        let has = |name: &str| manifest["dependencies"].get(name).is_some();
        assert_eq!(has("redis"), folder == "store", "{folder}/Cargo.toml names redis");
        assert_eq!(
            has("lapin") || has("rdkafka") || has("async-nats"),
            folder == "connectors",
            "{folder}/Cargo.toml names a broker's client"
        );
    }
}
