//! SLSA provenance v1 of images and archives: their sources, compiler and options.

use serde_json::{Value, json};

/// Facts about a build. Another person can repeat the build with these facts.
#[derive(Debug, Clone)]
pub struct Provenance {
    /// Command that built the program, such as `cargo-xtask-image`.
    pub command: &'static str,
    /// Repository of the sources, such as `https://example.com/team/kubectl-bundle`.
    pub source: String,
    /// Commit that was built, in hexadecimal. The working tree had no changes.
    pub commit: String,
    /// Digest of `Cargo.lock`, in hexadecimal.
    pub lock: String,
    /// Cargo's profile.
    pub profile: String,
    /// Platforms, such as `linux/amd64`.
    pub platforms: Vec<String>,
    /// Version of the compiler in the format of `rustc --version`.
    pub compiler: String,
    /// URI of the builder. `None` for a build on a developer's machine.
    pub builder: Option<String>,
}

impl Provenance {
    /// Returns the predicate of type `https://slsa.dev/provenance/v1`. The predicate contains no
    /// times, so that the same build has the same provenance.
    pub fn predicate(&self) -> Value {
        let source = format!("git+{}", self.source);
        let builder = self
            .builder
            .clone()
            .unwrap_or_else(|| format!("{}#local", self.source));
        json!({
            "buildDefinition": {
                "buildType": format!("{}#{}", self.source, self.command),
                "externalParameters": {
                    "source": source,
                    "profile": self.profile,
                    "platforms": self.platforms,
                },
                "internalParameters": { "compiler": self.compiler },
                "resolvedDependencies": [
                    { "uri": source, "digest": { "gitCommit": self.commit } },
                    { "name": "Cargo.lock", "digest": { "sha256": self.lock } },
                ],
            },
            "runDetails": { "builder": { "id": builder } },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicate_names_commit_lock_and_builder() {
        let mut provenance = Provenance {
            command: "cargo-xtask-image",
            source: "https://example.com/team/project".to_owned(),
            commit: "c0".to_owned(),
            lock: "10".to_owned(),
            profile: "release".to_owned(),
            platforms: vec!["linux/amd64".to_owned(), "linux/arm64".to_owned()],
            compiler: "rustc 1.95.0".to_owned(),
            builder: None,
        };
        let predicate = provenance.predicate();
        let definition = &predicate["buildDefinition"];
        assert_eq!(
            definition["buildType"],
            "https://example.com/team/project#cargo-xtask-image"
        );
        assert_eq!(
            definition["resolvedDependencies"],
            json!([
                {
                    "uri": "git+https://example.com/team/project",
                    "digest": { "gitCommit": "c0" },
                },
                { "name": "Cargo.lock", "digest": { "sha256": "10" } },
            ])
        );
        assert_eq!(
            definition["externalParameters"]["platforms"],
            json!(["linux/amd64", "linux/arm64"])
        );
        let builder = |predicate: Value| predicate["runDetails"]["builder"]["id"].clone();
        assert_eq!(builder(predicate), "https://example.com/team/project#local");
        provenance.builder = Some("https://example.com/ci".to_owned());
        assert_eq!(builder(provenance.predicate()), "https://example.com/ci");
    }
}
