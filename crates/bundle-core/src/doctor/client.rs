//! Checks of the plugin, its machine and the API server: program on PATH, versions, clocks.

use semver::Version;

use super::{CheckResult, Observed};
use crate::diagnostic::{Finding, codes};
use crate::version::{Minor, OLDEST_SERVER, ServerVersion};

/// Largest difference of the clocks that is not reported, in seconds. The header `Date` has whole
/// seconds.
const CLOCK_TOLERANCE: i64 = 10;
/// Smallest clock difference at which valid certificates are rejected, in seconds. The validity of
/// a certificate of bundle-webhook begins five minutes before its creation.
const CLOCK_LIMIT: i64 = 300;

/// Programs on PATH that kubectl could run for the plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// Path of the running program.
    pub running: String,
    /// Paths of all programs `kubectl-bundle`, in the order of PATH.
    pub on_path: Vec<String>,
    /// Paths of programs `kubectl-bundle-VERB`. For `kubectl bundle VERB`, kubectl runs such a
    /// program instead of the plugin.
    pub verbs: Vec<String>,
}

/// Checks that kubectl runs this program.
pub fn plugin(version: &str, programs: &Programs) -> CheckResult {
    const CHECK: &str = "plugin";
    let Programs {
        running,
        on_path,
        verbs,
    } = programs;
    let warning = |message: String, hint: &str| {
        let finding = Finding::warning(codes::doctor::SHADOWED, message).about(running.as_str());
        CheckResult::of(CHECK, finding.hint(hint))
    };
    match on_path.first() {
        Some(first) if first != running => warning(
            format!("this is version {version}, but kubectl runs {first}, which is first on PATH"),
            "remove the other program, or move the folder of this plugin to the beginning of PATH",
        ),
        None => warning(
            format!("this is version {version}, but kubectl finds no kubectl-bundle on PATH"),
            "copy this program to a folder of PATH",
        ),
        Some(_) if !verbs.is_empty() => warning(
            format!(
                "this is version {version}, but kubectl runs {} for a verb of this plugin",
                crate::text::some_of(verbs, 5)
            ),
            "remove that program, unless you use it on purpose",
        ),
        Some(_) => CheckResult::ok(CHECK, running.as_str(), format!("version {version}")),
    }
}

/// Checks the version of the API server. `newest` is the newest version that the plugin was tested
/// with.
pub fn kubernetes(reported: Observed<String>, newest: Minor) -> CheckResult {
    const CHECK: &str = "kubernetes";
    const SUBJECT: &str = "/version";
    let missing = || {
        Finding::error(
            codes::cluster::BAD_ANSWER,
            "the server does not return its version",
        )
        .about(SUBJECT)
        .hint("check that the server in the kubeconfig is a Kubernetes API server")
    };
    let reported = match reported.found_or(CHECK, SUBJECT, missing) {
        Ok(reported) => reported,
        Err(result) => return result,
    };
    let version = match ServerVersion::parse(&reported) {
        Ok(version) => version,
        Err(finding) => return CheckResult::of(CHECK, finding.about(SUBJECT)),
    };
    if !version.is_supported() {
        let finding = Finding::error(
            codes::cluster::SERVER_TOO_OLD,
            format!("{version} is older than {OLDEST_SERVER}, which bundle-webhook requires"),
        )
        .about(SUBJECT)
        .hint("upgrade the cluster first");
        return CheckResult::of(CHECK, finding);
    }
    let message = if version.minor() > newest {
        format!("{version}; the newest version that this program was tested with is {newest}")
    } else {
        version.to_string()
    };
    CheckResult::ok(CHECK, SUBJECT, message)
}

/// Compares the clock of the API server with the clock of this machine, both in Unix seconds.
/// `server` is `None` if the response contained no time.
pub fn clock(server: Option<i64>, local: i64) -> CheckResult {
    const CHECK: &str = "clock";
    const SUBJECT: &str = "clock of the API server";
    let Some(server) = server else {
        let hint = "compare the clocks by hand; a proxy may remove the header";
        return CheckResult {
            hint: Some(hint.to_owned()),
            ..CheckResult::no_response(CHECK, SUBJECT, "the response has no valid Date header")
        };
    };
    let ahead = local.saturating_sub(server);
    let difference = ahead.saturating_abs();
    if difference <= CLOCK_TOLERANCE {
        let message = format!("differs by less than {} s", CLOCK_TOLERANCE + 1);
        return CheckResult::ok(CHECK, SUBJECT, message);
    }
    let direction = if ahead > 0 { "ahead of" } else { "behind" };
    let message = format!("the clock of this machine is {difference} s {direction} the API server");
    let code = codes::doctor::CLOCK_DIFFERS;
    let finding = if difference < CLOCK_LIMIT {
        Finding::warning(code, message)
    } else {
        Finding::error(code, message)
    };
    let finding = finding.about(SUBJECT);
    CheckResult::of(CHECK, finding.hint("synchronise both clocks with NTP"))
}

/// Result of the comparison of two program versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionSkew {
    /// The minor versions are equal, or differ by one.
    Supported,
    /// The difference of the versions is not supported, and the plugin is older.
    PluginOlder,
    /// The difference of the versions is not supported, and the pod is older.
    PodOlder,
}

/// Compares the versions of plugin and pod. Plugin and pod work together if their minor versions
/// are at most one apart within the same major version.
pub fn version_skew(plugin: &Version, pod: &Version) -> VersionSkew {
    let is_near = plugin.major == pod.major && plugin.minor.abs_diff(pod.minor) <= 1;
    if is_near {
        VersionSkew::Supported
    } else if (plugin.major, plugin.minor) < (pod.major, pod.minor) {
        VersionSkew::PluginOlder
    } else {
        VersionSkew::PodOlder
    }
}

/// Returns the problem of a version skew between the plugin and the pod. `pod` is the version of
/// the pod as text. Returns `None` if the skew is supported, or if `pod` is not a version, such as
/// a digest.
pub fn skew_finding(plugin: &str, pod: &str) -> Option<Finding> {
    let parse = |text: &str| Version::parse(text.trim_start_matches('v')).ok();
    let (plugin, pod) = (parse(plugin)?, parse(pod)?);
    let older = match version_skew(&plugin, &pod) {
        VersionSkew::Supported => return None,
        VersionSkew::PluginOlder => "the plugin",
        VersionSkew::PodOlder => "bundle-webhook",
    };
    let finding = Finding::error(
        codes::doctor::VERSIONS_APART,
        format!(
            "the plugin has version {plugin}, and bundle-webhook has version {pod}: the minor versions differ by more than one"
        ),
    );
    Some(finding.hint(format!("upgrade {older}")))
}

/// Checks the versions of plugin and pod. `pod` is the tag of the pod's image. The inner `None`
/// means that the image has no tag.
pub fn skew(plugin: &str, pod: Observed<Option<String>>, deployment: &str) -> CheckResult {
    const CHECK: &str = "skew";
    let pod = match pod {
        Observed::Found(pod) => pod,
        Observed::Missing => {
            let message = "unknown version, because the Deployment does not exist";
            return CheckResult::skipped(CHECK, deployment, message);
        }
        Observed::Forbidden(message) => {
            return CheckResult::forbidden(CHECK, deployment, message);
        }
        Observed::Failed(message) => return CheckResult::no_response(CHECK, deployment, message),
    };
    let is_version = |text: &String| Version::parse(text.trim_start_matches('v')).is_ok();
    let Some(pod) = pod.filter(is_version) else {
        let message = format!("plugin {plugin}; the tag of the image has no version to compare");
        return CheckResult::ok(CHECK, deployment, message);
    };
    match skew_finding(plugin, &pod) {
        Some(finding) => CheckResult::of(CHECK, finding.about(deployment)),
        None => CheckResult::ok(
            CHECK,
            deployment,
            format!("plugin {plugin}, pod {}", pod.trim_start_matches('v')),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckState::{self, Ok as Passed, Problem, Unknown, Warning};

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn program_that_kubectl_runs_instead_is_named() {
        for (on_path, verbs, state, part) in [
            (&["/usr/bin/kb"][..], &[][..], Passed, "version 1.2.3"),
            (&["/usr/bin/kb", "/old/kb"], &[], Passed, "version 1.2.3"),
            (&["/old/kb", "/usr/bin/kb"], &[], Warning, "runs /old/kb"),
            (&[], &[], Warning, "finds no kubectl-bundle on PATH"),
            (&["/usr/bin/kb"], &["/a/kb-get"], Warning, "runs /a/kb-get"),
        ] {
            let programs = Programs {
                running: "/usr/bin/kb".to_owned(),
                on_path: texts(on_path),
                verbs: texts(verbs),
            };
            let result = plugin("1.2.3", &programs);
            assert_eq!(result.state, state, "{result:?}");
            assert!(result.message.contains(part), "{result:?}");
        }
    }

    #[test]
    fn servers_are_compared_with_the_supported_range() {
        for (reported, state, part) in [
            ("v1.32.9-eks-1552ad0", Problem, "older than 1.33"),
            ("v1.33.0", Passed, "v1.33.0"),
            ("v1.36.3+k3s1", Passed, "v1.36.3+k3s1"),
            ("v1.40.0", Passed, "tested with is 1.36"),
            ("latest", Problem, "not a Kubernetes version"),
        ] {
            let result = kubernetes(Observed::Found(reported.to_owned()), Minor(1, 36));
            assert_eq!(result.state, state, "{reported}");
            assert!(result.message.contains(part), "{result:?}");
        }
    }

    #[test]
    fn clock_difference_is_a_warning_and_then_a_problem() {
        for (server, local, state) in [
            (Some(1000), 1000, Passed),
            (Some(1000), 1010, Passed),
            (Some(1000), 1011, Warning),
            (Some(1000), 989, Warning),
            (Some(1000), 1299, Warning),
            (Some(1000), 1300, Problem),
            (Some(1000), 700, Problem),
            (Some(i64::MIN), i64::MAX, Problem),
            (None, 1000, Unknown),
        ] {
            assert_eq!(clock(server, local).state, state, "{server:?} {local}");
        }
        let ahead = clock(Some(1000), 2000);
        assert!(ahead.message.contains("1000 s ahead of"), "{ahead:?}");
    }

    #[test]
    fn plugin_and_pod_work_together_with_one_minor_version_between_them() {
        let version = |text: &str| Version::parse(text).unwrap();
        for (plugin, pod, expected) in [
            ("0.1.0", "0.1.9", VersionSkew::Supported),
            ("0.2.0", "0.1.0", VersionSkew::Supported),
            ("0.1.0", "0.2.0", VersionSkew::Supported),
            ("0.3.0", "0.1.0", VersionSkew::PodOlder),
            ("0.1.0", "0.3.0", VersionSkew::PluginOlder),
            ("1.0.0", "0.9.0", VersionSkew::PodOlder),
            ("1.4.0-rc.1", "1.5.0", VersionSkew::Supported),
        ] {
            let found = version_skew(&version(plugin), &version(pod));
            assert_eq!(found, expected, "{plugin} {pod}");
        }
    }

    #[test]
    fn skew_says_which_program_to_upgrade() {
        let checked = |pod: Observed<Option<String>>| skew("0.3.0", pod, "deployment w");
        let tag = |text: &str| checked(Observed::Found(Some(text.to_owned())));
        for (result, state, part) in [
            (tag("v0.2.4"), Passed, "pod 0.2.4"),
            (tag("0.3.1"), Passed, "pod 0.3.1"),
            (tag("sha256:aa"), Passed, "no version to compare"),
            (
                checked(Observed::Found(None)),
                Passed,
                "no version to compare",
            ),
            (
                tag("v0.1.0"),
                Problem,
                "the minor versions differ by more than one",
            ),
            (checked(Observed::Missing), Unknown, "does not exist"),
            (checked(Observed::Forbidden("no".into())), Unknown, "no"),
        ] {
            let found: (CheckState, &str) = (result.state, &result.message);
            assert!(found.0 == state && found.1.contains(part), "{found:?}");
        }
        assert_eq!(tag("v0.1.0").hint.unwrap(), "upgrade bundle-webhook");
        assert_eq!(tag("v0.9.0").hint.unwrap(), "upgrade the plugin");
    }
}
