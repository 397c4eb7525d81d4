//! CycloneDX 1.6 (ECMA-424), JSON.

use serde_json::{Value, json};

use super::{BillOfMaterials, LinkedPackage};

impl BillOfMaterials {
    /// Returns the bill of materials as a CycloneDX 1.6 document. Serial number and time are
    /// omitted, because they would differ for each build.
    pub fn to_cyclonedx(&self) -> Value {
        let (program, packages) = self.packages.split_at(1);
        let dependencies: Vec<Value> = self
            .packages
            .iter()
            .map(|package| {
                let uses: Vec<String> = package
                    .dependencies
                    .iter()
                    .map(|index| self.packages[*index].purl())
                    .collect();
                json!({ "ref": package.purl(), "dependsOn": uses })
            })
            .collect();
        json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "component": component(&program[0], "application"),
                "properties": [
                    { "name": "platform", "value": self.platform.to_string() },
                ],
            },
            "components": packages
                .iter()
                .map(|package| component(package, "library"))
                .collect::<Vec<_>>(),
            "dependencies": dependencies,
        })
    }
}

fn component(package: &LinkedPackage, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": package.purl(),
        "name": package.name,
        "purl": package.purl(),
    });
    if let Some(version) = &package.version {
        component["version"] = json!(version);
    }
    if let Some(licence) = &package.licence {
        component["licenses"] = json!([{ "expression": licence }]);
    }
    if let Some(sha256) = &package.sha256 {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::super::tests::bill;
    use super::*;

    #[test]
    fn document_names_program_packages_and_dependencies() {
        let document = bill().to_cyclonedx();
        assert_eq!(document["metadata"]["component"]["name"], "web");
        assert_eq!(
            document["components"][0],
            json!({
                "type": "library",
                "bom-ref": "pkg:cargo/a@1.2.3",
                "name": "a",
                "version": "1.2.3",
                "purl": "pkg:cargo/a@1.2.3",
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                "hashes": [{ "alg": "SHA-256", "content": "aa" }],
                "externalReferences": [{ "type": "vcs", "url": "https://example.com/a" }],
            })
        );
        assert_eq!(
            document["dependencies"][0],
            json!({
                "ref": "pkg:cargo/web@0.1.0",
                "dependsOn": ["pkg:cargo/a@1.2.3", "pkg:cargo/b@2.0.0"],
            })
        );
    }
}
