//! The stage of each test target of the workspace. Every target belongs to exactly one stage, so `cargo xtask test --all` runs
//! each test, and runs it once.
//!
//! Some stages also repeat unit tests in another environment: `vm` on other kernels, `miri` in an interpreter, `neon` on another
//! processor.

use crate::run::metadata;
use crate::suite::FOR_TESTS;
use crate::test::STAGES;
use serde_json::Value;

/// Packages that most stages do not build, each with the stage that runs all of its tests. The dependencies of these packages
/// are more than those of all others together.
pub(crate) const APART: &[(&str, &str)] = &[("fabric", "beyond")];

/// A target of a package.
struct Target<'a> {
    package: &'a str,
    kind: &'a str,
    name: &'a str,
    required_features: Vec<&'a str>,
}

/// Integration tests that a stage declares.
struct Declared {
    stage: &'static str,
    tests: Vec<&'static str>,
}

fn declared() -> Vec<Declared> {
    STAGES.iter().map(|stage| Declared { stage: stage.name, tests: (stage.tests)() }).collect()
}

fn targets(packages: &[Value]) -> Vec<Target<'_>> {
    let mut all = Vec::new();
    for package in packages {
        for target in package["targets"].as_array().into_iter().flatten() {
            let text = |value: &'static str| target[value].as_str().unwrap_or_default();
            let required = target["required-features"].as_array().into_iter().flatten();
            all.push(Target {
                package: package["name"].as_str().unwrap_or_default(),
                kind: target["kind"][0].as_str().unwrap_or_default(),
                name: text("name"),
                required_features: required.filter_map(Value::as_str).collect(),
            });
        }
    }
    all
}

/// The stage of a target; `None` for a build script, which has no tests.
///
/// # Errors
/// The target belongs to no stage, or to several.
fn stage_of(target: &Target<'_>, declared: &[Declared]) -> Result<Option<&'static str>, String> {
    let Target { package, kind, name, required_features } = target;
    let apart = APART.iter().find(|(apart, _)| apart == package).map(|(_, stage)| *stage);
    match *kind {
        "custom-build" => return Ok(None),
        "lib" | "cdylib" | "bin" | "example" => return Ok(Some(apart.unwrap_or("unit"))),
        "test" => {}
        other => {
            return Err(format!("{package} {name}: no stage of xtask/src/test.rs runs targets of the kind {other:?}"));
        }
    }
    let stages: Vec<&str> = declared.iter().filter(|row| row.tests.contains(name)).map(|row| row.stage).collect();
    let only = |features: &[&str]| required_features.iter().all(|feature| features.contains(feature));
    match stages[..] {
        [stage] if apart.is_none_or(|apart| apart == stage) => Ok(Some(stage)),
        [] if apart.is_none() && required_features.is_empty() => Ok(Some("unit")),
        [] if apart.is_none() && name.starts_with("root_") && only(&FOR_TESTS) => Ok(Some("machine")),
        [] => Err(format!(
            "{package} --test {name}: belongs to no stage; add it to `tests` of one row in xtask/src/test.rs"
        )),
        _ => Err(format!(
            "{package} --test {name}: declared by {}; expected one stage{}",
            stages.join(" and "),
            apart.map(|apart| format!(", which must be {apart}")).unwrap_or_default()
        )),
    }
}

/// Reports each target that does not belong to exactly one stage, and each declared test that does not exist.
pub(crate) fn check(packages: &[Value], findings: &mut Vec<String>) {
    let (declared, targets) = (declared(), targets(packages));
    findings.extend(targets.iter().filter_map(|target| stage_of(target, &declared).err()));
    let exists = |test: &str| targets.iter().any(|target| target.kind == "test" && target.name == test);
    for Declared { stage, tests } in &declared {
        let missing = tests.iter().filter(|test| !exists(test));
        findings.extend(
            missing.map(|test| format!("stage {stage}: no package has the test {test}; remove it from the row")),
        );
    }
}

/// Names of the integration tests of a stage. Targets of several packages with the same name belong to the same stage.
///
/// # Errors
/// `cargo metadata` fails, or a target does not belong to exactly one stage.
pub(crate) fn tests_of(stage: &str) -> Result<Vec<String>, String> {
    let (packages, declared) = (metadata()?, declared());
    let mut names = Vec::new();
    for target in targets(&packages).iter().filter(|target| target.kind == "test") {
        if stage_of(target, &declared)? == Some(stage) {
            names.push(target.name.to_owned());
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: fn() -> Vec<Declared> = || {
        vec![
            Declared { stage: "whole", tests: vec!["long", "twice"] },
            Declared { stage: "tls", tests: vec!["tls", "twice"] },
        ]
    };

    fn stage(package: &str, kind: &str, name: &str, features: &[&str]) -> Result<Option<&'static str>, String> {
        stage_of(&Target { package, kind, name, required_features: features.to_vec() }, &ROWS())
    }

    #[test]
    fn every_target_of_the_workspace_belongs_to_exactly_one_stage() {
        let mut findings = Vec::new();
        check(&metadata().unwrap(), &mut findings);
        assert_eq!(findings, Vec::<String>::new());
    }

    #[test]
    fn a_test_belongs_to_the_stage_that_declares_it_and_else_to_unit_or_machine() {
        assert_eq!(stage("cli", "test", "long", &[]), Ok(Some("whole")));
        assert_eq!(stage("web", "test", "tls", &["tls"]), Ok(Some("tls")));
        assert_eq!(stage("cli", "test", "short", &[]), Ok(Some("unit")));
        assert_eq!(stage("cli", "test", "root_short", &["root-tests", "peer-tests"]), Ok(Some("machine")));
        assert_eq!(stage("cli", "lib", "cli", &[]), Ok(Some("unit")));
        assert_eq!(stage("fabric", "lib", "fabric", &[]), Ok(Some("beyond")));
        assert_eq!(stage("heap", "custom-build", "build-script-build", &[]), Ok(None));
    }

    #[test]
    fn a_target_that_no_stage_or_several_stages_would_run_is_a_finding() {
        for (package, kind, name, features) in [
            ("cli", "test", "new", &["peer-tests"][..]),
            ("cli", "test", "root_new", &["fabric"]),
            ("cli", "test", "guest_new", &["guest-tests"]),
            ("fabric", "test", "new", &[]),
            ("cli", "bench", "new", &[]),
        ] {
            assert!(stage(package, kind, name, features).is_err(), "{package} {kind} {name}");
        }
        let twice = "cli --test twice: declared by whole and tls; expected one stage";
        assert_eq!(stage("cli", "test", "twice", &[]), Err(twice.into()));
        assert!(stage("fabric", "test", "long", &[]).unwrap_err().ends_with("which must be beyond"));
    }

    #[test]
    fn the_stages_together_run_every_integration_test() {
        let packages = metadata().unwrap();
        let mut all: Vec<_> = targets(&packages)
            .iter()
            .filter(|target| target.kind == "test")
            .map(|target| target.name.to_owned())
            .collect();
        all.sort_unstable();
        all.dedup();
        let mut run: Vec<String> = STAGES.iter().flat_map(|stage| tests_of(stage.name).unwrap()).collect();
        run.sort_unstable();
        assert_eq!(run, all);
    }
}
