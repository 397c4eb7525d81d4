//! Checks the objects of a bundle for the supported Kubernetes versions: APIs, built-in kinds,
//! CRDs, custom resources, configuration, namespaces. Checks operators by the rules of
//! operator-framework. The checks send no request to a cluster.

mod apis;
mod builtin;
mod cel;
mod config;
mod custom;
mod definition;
mod installation;
mod probes;
mod scaled;
mod scope;

#[cfg(test)]
mod tests;

use crate::{
    diagnostic::{Code, Finding, Findings, codes},
    format::{Content, Files, registry},
    object::Manifest,
    package::Format,
};

pub use builtin::KubernetesSchemas;
pub use installation::Installation;
pub use scope::namespaced;

/// Runs all checks. Findings are in the order of files and lines.
pub fn all(content: &Content, files: &Files, schemas: &dyn KubernetesSchemas) -> Findings {
    checked(content, files, schemas, None)
}

/// Like [`all`], for content that a BundleDeployment with these settings installs.
pub fn installed(
    content: &Content,
    files: &Files,
    schemas: &dyn KubernetesSchemas,
    installation: &Installation<'_>,
) -> Findings {
    checked(content, files, schemas, Some(installation))
}

fn checked(
    content: &Content,
    files: &Files,
    schemas: &dyn KubernetesSchemas,
    installation: Option<&Installation<'_>>,
) -> Findings {
    let mut findings = Findings::default();
    apis::check(content, &mut findings);
    builtin::check(content, schemas, &mut findings);
    scope::check(&content.objects, installation, &mut findings);
    scaled::check(&content.objects, installation, &mut findings);
    let mut rules = cel::Rules::new();
    let sound = definitions(&content.objects, &mut rules, &mut findings);
    custom::check(content, files, &sound, &mut rules, &mut findings);
    config::check(content.package.as_ref(), files, &mut findings);
    probes::check(content, &mut findings);
    if content.format == Format::RegistryV1 {
        findings.extend(registry::conformance_warnings(files));
    }
    findings.sort_by_key(|finding| (finding.place.file.clone(), finding.place.line));
    findings
}

/// Checks the CRDs, and returns the CRDs without an error.
fn definitions<'a>(
    objects: &'a [Manifest],
    rules: &mut cel::Rules,
    findings: &mut Findings,
) -> Vec<&'a Manifest> {
    let mut sound = Vec::new();
    for object in objects.iter().filter(|object| definition::is_one(object)) {
        let problems = definition::check(object, rules);
        if problems.iter().all(|problem| problem.unchecked) {
            sound.push(object);
        }
        for problem in problems {
            findings.push(custom::finding(
                object,
                codes::check::BAD_CRD,
                problem,
                "the API server would reject it: see the Kubernetes reference of CustomResourceDefinition",
            ));
        }
    }
    sound
}

/// Returns an error about an object.
fn error(object: &Manifest, code: Code, message: impl Into<String>) -> Finding {
    at(object, Finding::error(code, message))
}

/// Returns a warning about an object.
fn warning(object: &Manifest, code: Code, message: impl Into<String>) -> Finding {
    at(object, Finding::warning(code, message))
}

fn at(object: &Manifest, finding: Finding) -> Finding {
    finding
        .in_file(&object.file)
        .at_line(object.line)
        .about(object.id.to_string())
}
