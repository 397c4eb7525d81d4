use serde_json::json;

use super::*;

fn parse(source: &Value) -> Result<Source, Vec<String>> {
    CheckedBundleSpec::parse(&json!({"provisionerClassName": "plain", "source": source}))
        .map(|spec| spec.source)
        .map_err(|findings| {
            let verbatim = |f: &Finding| f.message.starts_with("bundle.spec");
            findings
                .into_iter()
                .map(|f| {
                    if verbatim(&f) {
                        f.message
                    } else {
                        f.to_string()
                    }
                })
                .collect()
        })
}

fn refused(source: &Value) -> String {
    parse(source).unwrap_err().join("; ")
}

#[test]
fn every_type_is_read() {
    assert_eq!(
        parse(
            &json!({"type": "image", "image": {"ref": "registry.example.com/web:1", "pullSecret": "cred"}})
        ),
        Ok(Source::Image {
            reference: "registry.example.com/web:1".parse().unwrap(),
            credentials: PullCredentials::Secret("cred".parse().unwrap())
        })
    );
    let git = parse(&json!({"type": "git", "git": {"repository": "https://git.example.com/a", "ref": {"tag": "v1"}, "directory": "./a/../b/"}})).unwrap();
    assert_eq!(git.host(), Some("git.example.com"));
    assert!(
        matches!(git, Source::Git { directory, checkout: GitRef::Tag(_), .. } if directory == "b")
    );
    assert!(matches!(
        parse(&json!({"type": "git", "git": {"repository": "git@git.example.com:a", "ref": {"branch": "main"}}})),
        Ok(Source::Git { directory, .. }) if directory == "manifests"
    ));
    assert!(matches!(
        parse(&json!({"type": "configMaps", "configMaps": [{"configMap": {"name": "a"}, "path": "manifests"}, {"configMap": {"name": "b"}}]})),
        Ok(Source::ConfigMaps(files)) if files.len() == 2 && files[1].path.is_empty()
    ));
    assert!(
        parse(&json!({"type": "http", "http": {"url": "https://files.example.com/a.tgz"}})).is_ok()
    );
    assert_eq!(
        parse(&json!({"type": "upload", "upload": {}})),
        Ok(Source::Upload)
    );
}

#[test]
fn source_has_at_most_256_config_maps() {
    let source = |count: usize| {
        let files: Vec<Value> = (0..count)
            .map(|number| json!({"configMap": {"name": format!("a{number}")}}))
            .collect();
        json!({"type": "configMaps", "configMaps": files})
    };
    assert!(parse(&source(256)).is_ok());
    let message = refused(&source(257));
    assert!(
        message.contains("Too many: 257: must have at most 256 items"),
        "{message}"
    );
}

#[test]
fn keeps_messages_of_rukpak_for_sources() {
    for (source, text) in [
        (
            json!({"type": "image"}),
            "bundle.spec.source.image must be set for source type \"image\"",
        ),
        (
            json!({"type": "git"}),
            "bundle.spec.source.git must be set for source type \"git\"",
        ),
        (
            json!({"type": "configMaps"}),
            "bundle.spec.source.configmaps must be set for source type \"configmaps\"",
        ),
        (
            json!({"type": "configMaps", "configMaps": []}),
            "bundle.spec.source.configmaps must be set for source type \"configmaps\"",
        ),
        (
            json!({"type": "configMaps", "configMaps": [{"configMap": {"name": "a"}}, {"configMap": {"name": "a"}, "path": "../x"}]}),
            "bundle.spec.source.configmaps[1].path is invalid: \"../x\" is outside bundle root",
        ),
    ] {
        assert_eq!(refused(&source), text);
    }
    for directory in ["..", "../", "../x", "a/../../b", "./.."] {
        assert_eq!(
            refused(
                &json!({"type": "git", "git": {"repository": "https://git.example.com/r", "ref": {"tag": "t"}, "directory": directory}})
            ),
            "bundle.spec.source.git.directory begins with \"../\": directory must define path within the repository"
        );
    }
}

#[test]
fn rejects_paths_outside_of_the_bundle_and_non_http_urls() {
    // Paths shorter than the prefix that is removed.
    for directory in [".", "a", "ab"] {
        assert!(parse(&json!({"type": "git", "git": {"repository": "https://git.example.com/r", "ref": {"tag": "t"}, "directory": directory}})).is_ok());
    }
    assert!(refused(&json!({"type": "git", "git": {"repository": "https://git.example.com/r", "ref": {"tag": "t"}, "directory": "/etc"}})).contains("is absolute"));
    assert!(
        refused(&json!({"type": "configMaps", "configMaps": [{"configMap": {"name": "a"}, "path": "/etc"}]}))
            .contains("\"/etc\" is outside bundle root")
    );
    assert!(refused(&json!({"type": "http"})).contains("source.http must be set"));
    assert_eq!(
        refused(&json!({"type": "http", "http": {"url": "file:///etc/passwd"}})),
        "spec.source.http.url: the URL is not an http or https URL"
    );
    let secret = refused(&json!({"type": "http", "http": {"url": "https://a:s3cret@b/c"}}));
    assert!(secret.contains("has credentials"), "{secret}");
    assert!(!secret.contains("s3cret"), "{secret}");
}

#[test]
fn rejects_git_fields_that_could_be_options_or_other_protocols() {
    let git = |field: &str, value: &str| {
        let mut git = json!({"repository": "https://git.example.com/r", "ref": {"tag": "t"}});
        match field {
            "repository" | "directory" => git[field] = json!(value),
            member => git["ref"] = json!({member: value}),
        }
        refused(&json!({"type": "git", "git": git}))
    };
    for (field, value, text) in [
        (
            "repository",
            "file:///etc",
            "spec.source.git.repository: is neither an https nor an ssh URL",
        ),
        (
            "repository",
            "ext::sh",
            "spec.source.git.repository: is neither an https nor an ssh URL",
        ),
        (
            "repository",
            "--upload-pack=id",
            "spec.source.git.repository: is neither an https nor an ssh URL",
        ),
        (
            "repository",
            "https://a:secret@git.example.com/r",
            "spec.source.git.repository: contains credentials: set auth.secret instead",
        ),
        (
            "branch",
            "--upload-pack=id",
            "spec.source.git.ref.branch: `--upload-pack=id` is not a valid name of a git ref",
        ),
        (
            "branch",
            "a..b",
            "spec.source.git.ref.branch: `a..b` is not a valid name of a git ref",
        ),
        (
            "tag",
            "v1^{tree}",
            "spec.source.git.ref.tag: `v1^{tree}` is not a valid name of a git ref",
        ),
        (
            "commit",
            "main",
            "spec.source.git.ref.commit: `main` is not a commit of 40 hexadecimal digits",
        ),
        (
            "directory",
            "a\\b",
            "spec.source.git.directory: has a backslash or a control character",
        ),
    ] {
        assert_eq!(git(field, value), text, "{value}");
    }
}

#[test]
fn reports_wrong_types_with_their_field() {
    for (source, text) in [
        (json!(null), "spec.source: this field is required"),
        (json!(3), "spec.source: must be an object"),
        (json!({}), "spec.source: this field is required"),
        (
            json!({"type": "oci"}),
            "spec.source.type: `oci` is not one of image, git, configMaps, http, upload",
        ),
        (
            json!({"type": "image", "image": {}}),
            "bundle.spec.source.image must be set for source type \"image\"",
        ),
        (
            json!({"type": "image", "image": []}),
            "bundle.spec.source.image must be set for source type \"image\"",
        ),
        (
            json!({"type": "image", "image": "x"}),
            "spec.source.image.ref: this field is required",
        ),
        (
            json!({"type": "image", "image": {"ref": 1}}),
            "spec.source.image.ref: must be text",
        ),
        (
            json!({"type": "image", "image": {"ref": "web"}}),
            "spec.source.image.ref: invalid reference `web`: it has no registry",
        ),
        (
            json!({"type": "image", "image": {"ref": "registry.example.com/a:1"}, "http": {"url": "u"}}),
            "bundle.spec.source must validate one and only one schema (oneOf). Found 2 valid alternatives (image, http)",
        ),
        (
            json!({"type": "git", "git": {"repository": "https://git.example.com/r", "ref": {"tag": "a", "branch": "b"}}}),
            "bundle.spec.source.git.ref must validate one and only one schema (oneOf). Found 2 valid alternatives (branch, tag)",
        ),
        (
            json!({"type": "git", "git": {"repository": "https://git.example.com/r", "ref": {}}}),
            "bundle.spec.source.git.ref must validate one and only one schema (oneOf). Found none valid",
        ),
    ] {
        assert_eq!(refused(&source), text, "{source}");
    }
}

#[test]
fn class_names_follow_the_pattern() {
    for name in ["invalid/class-name", "-a", "a-", "A", "a.b", ""] {
        let spec =
            json!({"provisionerClassName": name, "source": {"type": "upload", "upload": {}}});
        assert!(CheckedBundleSpec::parse(&spec).is_err(), "{name}");
    }
}
