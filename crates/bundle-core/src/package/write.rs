//! Writes a package as `bundle.yaml`, for content without `bundle.yaml`. The parser returns the
//! same package for this text.

use serde_json::{Map, Value};

use super::{API_VERSION, Format, KIND, Package, PackageInfo, SCHEMA_ID, parse};
use crate::{diagnostic::Finding, yaml};

impl Package {
    /// Returns a package with only the required fields. Name and version are validated as in a
    /// file.
    pub fn new(name: &str, version: &str, format: Format) -> Result<Self, Finding> {
        Ok(Self {
            name: parse::name(name)?,
            version: parse::semantic_version(version)?,
            format,
            description: None,
            kubernetes: None,
            requires: None,
            upgrades: None,
            images: Vec::new(),
            config: None,
            resources: Vec::new(),
            probes: Vec::new(),
            about: PackageInfo::default(),
        })
    }

    /// Returns the text of `bundle.yaml`, with a comment that names the schema for editors.
    pub fn to_yaml(&self) -> String {
        let mut text = format!(
            "# yaml-language-server: $schema={SCHEMA_ID}\napiVersion: {API_VERSION}\nkind: {KIND}\n"
        );
        let mut fields = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        // The fields are written in the order of the table, which is their usual order.
        for name in super::shape::PACKAGE.names() {
            if let Some(value) = fields.remove(name) {
                let one = Map::from_iter([(name.to_owned(), value)]);
                text.push_str(&yaml::to_string(&Value::Object(one)));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::FULL;
    use super::*;

    #[test]
    fn written_package_parses_to_the_same_package() {
        let package = parse::parse(FULL.as_bytes()).unwrap();
        let text = package.to_yaml();
        assert_eq!(parse::parse(text.as_bytes()).unwrap(), package, "{text}");
        let small = Package::new("web", "1.0.0", Format::HelmV3).unwrap();
        assert_eq!(
            small.to_yaml().lines().skip(1).collect::<Vec<_>>(),
            [
                "apiVersion: bundle.core.rukpak.io/v1alpha1",
                "kind: Package",
                "name: web",
                "version: \"1.0.0\"",
                "format: helm+v3"
            ]
        );
        assert!(Package::new("Web", "1.0.0", Format::PlainV0).is_err());
        assert!(Package::new("web", "1.0", Format::PlainV0).is_err());
    }
}
