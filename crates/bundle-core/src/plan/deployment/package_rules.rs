//! Rules of `bundle.yaml` about the cluster: required APIs and packages, and the installed versions
//! that a new version can replace.

use std::collections::{BTreeSet, HashMap};

use semver::Version;

use crate::{
    diagnostic::{Finding, Findings, codes},
    package::{Package, Requirement, Requires, Upgrades},
    version::Range,
};

pub use crate::review::deployment::AllowedUpgrades;

/// Package that a BundleDeployment has installed completely.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstalledPackage {
    /// Name of the package.
    pub name: String,
    /// Version of the package; `None` if unknown.
    pub version: Option<String>,
    /// Digest of the content.
    pub digest: String,
}

impl InstalledPackage {
    fn version(&self) -> Option<Version> {
        Version::parse(self.version.as_deref()?).ok()
    }

    /// Returns the version for messages.
    fn shown_version(&self) -> &str {
        self.version.as_deref().unwrap_or("of an unknown version")
    }
}

/// Rules of one package.
#[derive(Debug, Clone, PartialEq)]
pub struct PackageRules {
    name: String,
    version: Version,
    requires: Requires,
    upgrades: Option<Upgrades>,
}

impl PackageRules {
    /// Returns the rules of `package`.
    pub fn new(package: &Package) -> Self {
        Self {
            name: package.name.clone(),
            version: package.version.clone(),
            requires: package.requires.clone().unwrap_or_default(),
            upgrades: package.upgrades.clone(),
        }
    }

    /// Returns the name of the package.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the required APIs, as `group/version/Kind`.
    pub fn apis(&self) -> &[String] {
        &self.requires.apis
    }

    /// Returns true if the package requires the package `name`.
    pub fn requires_package(&self, name: &str) -> bool {
        let mut required = self.requires.packages.iter();
        required.any(|required| required.name == name)
    }

    /// Returns a finding for each requirement that the cluster does not meet. `is_served` returns
    /// `true` if the server serves an API. `installed` contains the packages of all
    /// BundleDeployments.
    pub fn unmet(
        &self,
        is_served: impl Fn(&str) -> bool,
        installed: &[InstalledPackage],
    ) -> Findings {
        let missing_apis = self.requires.apis.iter().filter(|api| !is_served(api));
        let apis = missing_apis.map(|api| format!("API {api} is not served"));
        let packages = self.requires.packages.iter();
        let installed = named_packages(installed);
        let packages = packages.filter_map(|required| unmet_package(required, &installed));
        let mut messages: Vec<String> = apis.chain(packages).collect();
        messages.sort();
        messages.dedup();
        let findings = messages.into_iter().map(|message| {
            let message = format!("{} has an unmet requirement: {message}", self.title());
            Finding::error(codes::install::REQUIREMENT_MISSING, message)
        });
        findings.collect()
    }

    /// Returns the reasons to reject an upgrade from the `installed` package to content with this
    /// digest. There are no reasons if the installed content has the same digest.
    pub fn upgrade_refusals(
        &self,
        installed: &InstalledPackage,
        digest: &str,
        allowed: AllowedUpgrades,
    ) -> Findings {
        let mut findings = Findings::default();
        if installed.digest == digest {
            return findings;
        }
        if installed.name != self.name {
            if !allowed.other_package {
                findings.push(self.other_package_refusal(&installed.name));
            }
            return findings;
        }
        let before = installed.version();
        let shown = installed.shown_version();
        if let Some(upgrades) = &self.upgrades {
            for rule in unmet_upgrades(upgrades, before.as_ref()) {
                let message = format!(
                    "{} replaces only versions {rule}, and {} {shown} is installed",
                    self.title(),
                    self.name
                );
                findings.push(
                    Finding::error(codes::install::UPGRADE_UNSUPPORTED, message)
                        .hint("first deploy a version between these two versions"),
                );
            }
        }
        // Build metadata has no order: semver.org, section 10.
        let is_lower = before
            .as_ref()
            .is_some_and(|before| self.version.cmp_precedence(before).is_lt());
        if is_lower && !allowed.lower_version {
            let message = format!(
                "version {} of {} is lower than the installed version {shown}",
                self.version, self.name
            );
            findings.push(
                Finding::error(codes::install::LOWER_VERSION, message)
                    .hint("to allow the lower version, set spec.rollout.allowDowngrade: true"),
            );
        }
        findings
    }

    fn other_package_refusal(&self, installed: &str) -> Finding {
        let message = format!("{} cannot replace package {installed}", self.title());
        Finding::error(codes::install::OTHER_PACKAGE, message).hint(
            "deploy the package with another BundleDeployment, or set \
             spec.rollout.allowOtherPackage: true to replace the installed package and delete its \
             objects",
        )
    }

    fn title(&self) -> String {
        format!("package {} {}", self.name, self.version)
    }
}

/// Returns the reason to reject content of this version if `versions`, the range in
/// `spec.rollout.versions`, excludes the version. An unknown version is in no range. A prerelease
/// is only in a range that names a prerelease.
pub fn version_refusal(version: Option<&str>, versions: &Range) -> Option<Finding> {
    let parsed = version.and_then(|text| Version::parse(text).ok());
    let is_allowed = |version: &Version| {
        if version.pre.is_empty() {
            versions.contains(numbers(version))
        } else {
            versions.contains_prerelease(numbers(version))
        }
    };
    if parsed.as_ref().is_some_and(is_allowed) {
        return None;
    }
    let found = match version {
        Some(version) => format!("version {version} of the content"),
        None => "the unknown version of the content".to_owned(),
    };
    let message = format!("{found} is outside of the range {versions} in spec.rollout.versions");
    let is_prerelease_of_range = parsed.is_some_and(|found| versions.contains(numbers(&found)));
    let hint = if is_prerelease_of_range {
        "to allow prereleases, add the suffix -0 to a version in spec.rollout.versions, such as \
         >=1.4.0-0"
    } else {
        "to allow this version, change or remove spec.rollout.versions"
    };
    Some(Finding::error(codes::install::VERSION_NOT_ALLOWED, message).hint(hint))
}

/// Returns the rules that the installed version does not satisfy. An unknown version satisfies no
/// rule.
fn unmet_upgrades(upgrades: &Upgrades, installed: Option<&Version>) -> Vec<String> {
    let from = upgrades.from.as_ref().filter(|from| {
        let is_in = |version: &Version| from.contains(numbers(version));
        !installed.is_some_and(is_in)
    });
    let minimum = upgrades.minimum.as_ref().filter(|minimum| {
        let is_above = |version: &Version| version.cmp_precedence(minimum).is_ge();
        !installed.is_some_and(is_above)
    });
    let from = from.map(|from| from.as_str().to_owned());
    let minimum = minimum.map(|minimum| format!(">={minimum}"));
    from.into_iter().chain(minimum).collect()
}

/// All installed packages of one name. Thousands of BundleDeployments can install the same package,
/// and hundreds of requirements can name it.
#[derive(Debug, Default)]
struct NamedPackages<'a> {
    /// Version and digest of the packages whose version is known.
    found: BTreeSet<([u64; 3], &'a str)>,
    /// Versions for messages.
    shown: BTreeSet<&'a str>,
}

/// Returns the installed packages by their names.
fn named_packages(installed: &[InstalledPackage]) -> HashMap<&str, NamedPackages<'_>> {
    let mut named = HashMap::<&str, NamedPackages<'_>>::new();
    for package in installed {
        let of_name = named.entry(package.name.as_str()).or_default();
        of_name.shown.insert(package.shown_version());
        if let Some(version) = package.version() {
            let found = (numbers(&version), package.digest.as_str());
            of_name.found.insert(found);
        }
    }
    named
}

/// Returns a message if no installed package satisfies the requirement.
fn unmet_package(
    required: &Requirement,
    installed: &HashMap<&str, NamedPackages<'_>>,
) -> Option<String> {
    let Requirement {
        name,
        version,
        digest,
    } = required;
    let packages = installed.get(name.as_str());
    let found = packages.into_iter().flat_map(|packages| &packages.found);
    let mut found = found.filter(|(found, _)| version.contains(*found));
    let is_met = match digest {
        None => found.next().is_some(),
        Some(digest) => found.any(|(_, found)| digest.as_str() == *found),
    };
    if is_met {
        return None;
    }
    let others = packages.into_iter().flat_map(|packages| &packages.shown);
    let others: Vec<&str> = others.copied().collect();
    let with_digest = digest
        .as_ref()
        .map_or_else(String::new, |digest| format!(" with digest {digest}"));
    let found = if others.is_empty() {
        "is not installed".to_owned()
    } else {
        format!("is not installed (installed: {})", others.join(", "))
    };
    Some(format!("package {name} {version}{with_digest} {found}"))
}

fn numbers(version: &Version) -> [u64; 3] {
    [version.major, version.minor, version.patch]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::Format;
    use crate::reference::Digest;

    fn rules(requires: Option<Requires>, upgrades: Option<Upgrades>) -> PackageRules {
        PackageRules {
            name: "web".to_owned(),
            version: Version::new(1, 4, 0),
            requires: requires.unwrap_or_default(),
            upgrades,
        }
    }

    fn installed(name: &str, version: &str) -> InstalledPackage {
        InstalledPackage {
            name: name.to_owned(),
            version: (!version.is_empty()).then(|| version.to_owned()),
            digest: Digest::of(version.as_bytes()).to_string(),
        }
    }

    fn downgrade(lower_version: bool) -> AllowedUpgrades {
        AllowedUpgrades {
            lower_version,
            other_package: false,
        }
    }

    fn texts(findings: &Findings) -> Vec<String> {
        findings
            .iter()
            .map(|finding| finding.message.clone())
            .collect()
    }

    #[test]
    fn requirements_name_every_missing_api_and_package() {
        let requirement = |name: &str, version: &str, digest: Option<&str>| Requirement {
            name: name.to_owned(),
            version: Range::parse(version).unwrap(),
            digest: digest.map(|of| Digest::of(of.as_bytes())),
        };
        let rules = rules(
            Some(Requires {
                apis: vec!["v1/Node".to_owned(), "a.example.com/v1/Jug".to_owned()],
                packages: vec![
                    requirement("cert-manager", "^1.14", None),
                    requirement("db", "1.x", Some("1.2.0")),
                ],
            }),
            None,
        );
        let none = rules.unmet(|_| false, &[]);
        let db = format!("package db 1.x with digest {}", Digest::of(b"1.2.0"));
        assert_eq!(
            texts(&none),
            [
                "package web 1.4.0 has an unmet requirement: API a.example.com/v1/Jug is not served".to_owned(),
                "package web 1.4.0 has an unmet requirement: API v1/Node is not served".to_owned(),
                "package web 1.4.0 has an unmet requirement: package cert-manager ^1.14 is not installed"
                    .to_owned(),
                format!("package web 1.4.0 has an unmet requirement: {db} is not installed"),
            ]
        );
        let present = [
            installed("cert-manager", "1.13.0"),
            installed("cert-manager", "latest"),
            installed("cert-manager", ""),
            installed("db", "1.3.0"),
        ];
        assert_eq!(
            texts(&rules.unmet(|api| api == "v1/Node", &present)),
            [
                "package web 1.4.0 has an unmet requirement: API a.example.com/v1/Jug is not served".to_owned(),
                "package web 1.4.0 has an unmet requirement: package cert-manager ^1.14 is not installed (installed: 1.13.0, latest, of an unknown version)".to_owned(),
                format!("package web 1.4.0 has an unmet requirement: {db} is not installed (installed: 1.3.0)"),
            ]
        );
        let present = [
            installed("cert-manager", "1.15.1"),
            installed("db", "1.2.0"),
        ];
        assert!(rules.unmet(|_| true, &present).is_empty());
        assert!(rules.requires_package("db") && !rules.requires_package("web"));
    }

    /// With a comparison of each requirement with each BundleDeployment, this test would need
    /// minutes.
    #[test]
    fn many_installations_of_one_package_are_compared_once() {
        let requirement = Requirement {
            name: "db".to_owned(),
            version: Range::parse(">=2").unwrap(),
            digest: None,
        };
        let requires = Requires {
            apis: Vec::new(),
            packages: vec![requirement; 2_000],
        };
        let installed = vec![installed("db", "1.3.0"); 100_000];
        let unmet = rules(Some(requires), None).unmet(|_| true, &installed);
        assert_eq!(
            texts(&unmet),
            [
                "package web 1.4.0 has an unmet requirement: package db >=2 is not installed (installed: 1.3.0)"
            ]
        );
    }

    #[test]
    fn upgrades_depend_on_the_installed_version_of_the_same_package() {
        let range = |from: &str, minimum: Option<&str>| Upgrades {
            from: Some(Range::parse(from).unwrap()),
            minimum: minimum.map(|text| Version::parse(text).unwrap()),
        };
        let from = "package web 1.4.0 replaces only versions >=1.2, and web";
        let minimum = "package web 1.4.0 replaces only versions >=1.2.3, and web";
        let lower = "version 1.4.0 of web is lower than the installed version";
        for (upgrades, version, allowed, expected) in [
            (None, "1.3.0", false, vec![]),
            (None, "1.4.0", false, vec![]),
            (None, "1.4.0+build", false, vec![]),
            (None, "1.5.0", false, vec![format!("{lower} 1.5.0")]),
            (None, "1.5.0", true, vec![]),
            (None, "1.4.0-rc.1", false, vec![]),
            (None, "", false, vec![]),
            (None, "latest", false, vec![]),
            (Some(range(">=1.2", None)), "1.2.0", false, vec![]),
            (
                Some(range(">=1.2", None)),
                "1.1.9",
                true,
                vec![format!("{from} 1.1.9 is installed")],
            ),
            (
                Some(range(">=1.2", Some("1.2.3"))),
                "1.2.1",
                true,
                vec![format!("{minimum} 1.2.1 is installed")],
            ),
            (
                Some(range(">=1.2", Some("1.2.3"))),
                "",
                true,
                vec![
                    format!("{from} of an unknown version is installed"),
                    format!("{minimum} of an unknown version is installed"),
                ],
            ),
            (
                Some(range(">=1.2", None)),
                "1.5.0",
                false,
                vec![format!("{lower} 1.5.0")],
            ),
        ] {
            let rules = rules(None, upgrades);
            let found =
                rules.upgrade_refusals(&installed("web", version), "other", downgrade(allowed));
            assert_eq!(texts(&found), expected, "{version:?} {allowed}");
            let same = installed("web", version);
            let found = rules.upgrade_refusals(&same, &same.digest, downgrade(allowed));
            assert!(found.is_empty());
        }
    }

    #[test]
    fn versions_outside_of_the_range_and_unknown_versions_are_rejected() {
        let unknown = "the unknown version of the content is outside of the range";
        for (range, version, is_allowed) in [
            ("^1.4", Some("1.4.0"), true),
            ("^1.4", Some("1.9.3+build"), true),
            ("^1.4", Some("1.3.9"), false),
            ("^1.4", Some("2.0.0"), false),
            ("^1.4", Some("2.0.0-rc.1"), false),
            (">=1.4.0", Some("1.4.0-alpha"), false),
            (">=1.4.0", Some("1.5.0-alpha"), false),
            (">=1.4.0-0", Some("1.4.0-alpha"), true),
            (">=1.4.0-0 <2", Some("2.0.0-alpha"), false),
            ("^0.4", Some("0.4.7"), true),
            ("^0.4", Some("0.5.0"), false),
            ("^0.4", Some("1.0.0"), false),
            ("^0.0.4", Some("0.0.5"), false),
            ("1.4.2", Some("1.4.2"), true),
            ("1.4.2", Some("1.4.3"), false),
            ("*", Some("7.0.0"), true),
            ("*", Some("latest"), false),
            ("*", None, false),
        ] {
            let refusal = version_refusal(version, &Range::parse(range).unwrap());
            assert_eq!(refusal.is_none(), is_allowed, "{range} {version:?}");
            let Some(refusal) = refusal else {
                continue;
            };
            let found = version.map_or_else(
                || unknown.to_owned(),
                |version| format!("version {version} of the content is outside of the range"),
            );
            let expected = format!("{found} {range} in spec.rollout.versions");
            assert_eq!(refusal.message, expected);
        }
    }

    #[test]
    fn only_a_prerelease_of_a_version_in_the_range_gets_the_hint_about_prereleases() {
        for (range, version, is_hinted) in [
            (">=1.4.0", Some("1.4.0-alpha"), true),
            ("^1.4", Some("1.5.0-rc.1"), true),
            ("^1.4-0 || >=3", Some("3.1.0-alpha"), true),
            ("^1.4", Some("2.0.0-rc.1"), false),
            (">=1.4.0-0 <2", Some("2.0.0-alpha"), false),
            ("^1.4", Some("2.0.0"), false),
            ("*", Some("latest"), false),
            ("*", None, false),
        ] {
            let refusal = version_refusal(version, &Range::parse(range).unwrap());
            let hint = refusal.and_then(|refusal| refusal.hint).unwrap();
            assert_eq!(hint.contains("suffix -0"), is_hinted, "{range} {version:?}");
        }
    }

    #[test]
    fn another_package_replaces_the_installed_package_only_if_allowed() {
        let upgrades = Upgrades {
            from: Some(Range::parse(">=1.2").unwrap()),
            minimum: None,
        };
        for (version, upgrades) in [("1.0.0", Some(upgrades)), ("9.0.0", None), ("", None)] {
            let rules = rules(None, upgrades);
            let shop = installed("shop", version);
            let refusals = rules.upgrade_refusals(&shop, "other", downgrade(true));
            let expected = ["package web 1.4.0 cannot replace package shop"];
            assert_eq!(texts(&refusals), expected, "{version:?}");
            let allowed = AllowedUpgrades {
                other_package: true,
                lower_version: false,
            };
            assert!(rules.upgrade_refusals(&shop, "other", allowed).is_empty());
            let same = rules.upgrade_refusals(&shop, &shop.digest, downgrade(false));
            assert!(same.is_empty());
        }
    }

    #[test]
    fn rules_are_those_of_the_package() {
        let mut package = Package::new("web", "1.4.0", Format::PlainV0).unwrap();
        assert_eq!(PackageRules::new(&package), rules(None, None));
        package.requires = Some(Requires {
            apis: vec!["v1/Node".to_owned()],
            packages: Vec::new(),
        });
        assert_eq!(PackageRules::new(&package).apis(), ["v1/Node"]);
    }
}
