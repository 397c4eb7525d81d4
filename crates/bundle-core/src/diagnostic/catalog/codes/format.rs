//! Diagnostic codes: what is inside a bundle.
//! Not here: any other area.

area! {
    NO_MANIFESTS = "BUNDLE-FORMAT-001", Refused, "there is no manifests folder", "A plain+v0 bundle keeps its manifests in the folder manifests/, beside bundle.yaml.";
    UNREADABLE = "BUNDLE-FORMAT-002", Refused, "a file is not readable YAML or JSON", "Manifests are YAML or JSON in UTF-8, read as kubectl reads them. A key may stand only once in a map, and keys are text.";
    FILE_TOO_LARGE = "BUNDLE-FORMAT-003", Refused, "a file is too large", "Files of manifests are read up to 10 MiB. The API server takes no larger object in any case; many objects can be split over several files.";
    TOO_COMPLEX = "BUNDLE-FORMAT-004", Refused, "a document unfolds to too much", "Anchors and aliases, depth and the number of values in one document are limited, so that a small file cannot fill the memory of the pod. Write the values out, or split the document.";
    DUPLICATE_KEY = "BUNDLE-FORMAT-005", Refused, "a key is there twice", "Readers disagree on which of the two counts, so neither does. Remove one.";
    EMPTY_FILE = "BUNDLE-FORMAT-006", Refused, "a file holds no document", "A file with nothing in it but white space and comments is more likely a mistake than meant. Put an object in, or remove the file.";
    NOT_AN_OBJECT = "BUNDLE-FORMAT-007", Refused, "a document is not a Kubernetes object", "Each document is a map with apiVersion, kind and metadata.";
    MISSING_FIELD = "BUNDLE-FORMAT-008", Refused, "an object lacks a field that names it", "Each object has apiVersion, kind and metadata.name, written out. metadata.generateName cannot be installed twice with the same result.";
    LIST = "BUNDLE-FORMAT-009", Refused, "a list stands where objects belong", "A List is a way to carry objects and not an object. Put its items into the file as documents of their own, separated by ---.";
    DUPLICATE_OBJECT = "BUNDLE-FORMAT-010", Refused, "an object is there twice", "Two documents name the same object (group, kind, namespace and name), so that one would undo the other. Remove or rename one.";
    BAD_NAME = "BUNDLE-FORMAT-011", Refused, "a name is not one that Kubernetes takes", "Names of objects are at most 253 characters, without / and %, and neither . nor ..; most kinds want lower-case letters, digits, - and . only. Namespaces are at most 63 characters of a-z, 0-9 and -.";
    SUBFOLDER = "BUNDLE-FORMAT-012", Refused, "there is a folder within manifests", "The manifests of a plain+v0 bundle lie flat in manifests/. Move the files up, or out of manifests/.";
    NO_OBJECTS = "BUNDLE-FORMAT-013", Refused, "there are no objects", "A plain+v0 bundle has at least one object in manifests/.";
    UNSUPPORTED_FORMAT = "BUNDLE-FORMAT-014", Refused, "the format is not supported", "The field format of bundle.yaml, or the annotation of the OCI manifest made from it, names a layout that this version cannot read.";
    BAD_PACKAGE = "BUNDLE-FORMAT-015", Refused, "bundle.yaml has a field that cannot be used", "bundle.yaml is read strictly: unknown fields, fields of another type and values out of their rules are refused, with the field and the line.";
    BAD_VERSION = "BUNDLE-FORMAT-016", Refused, "a version cannot be read", "Packages have semantic versions with all three numbers (1.4.0). Of Kubernetes versions major, minor and patch are read, and vendors' suffixes are kept and ignored.";
    BAD_RANGE = "BUNDLE-FORMAT-017", Refused, "a range of versions cannot be read", "A range is made of comparisons: >=1.31 <1.38 means both, 1.31 || 1.33 one of them; ~1.31 and 1.31.x mean every patch of 1.31, ^1.14 everything from 1.14 to 2. Only major, minor and patch count.";
    UNSUPPORTED_KUBERNETES = "BUNDLE-FORMAT-018", Refused, "the bundle is not made for this version of Kubernetes", "bundle.yaml names the versions of Kubernetes that the bundle supports, and the server's is another. Upgrade the cluster, use another version of the bundle, or set spec.kubernetes.unsupported: Accept on the BundleDeployment, which is recorded.";
    BAD_ANNOTATION = "BUNDLE-FORMAT-019", Refused, "an annotation of the OCI manifest cannot be read", "The manifest calls itself a bundle, but what it says about it is not what kubectl bundle build writes. Build it again.";
    NOT_TEXT = "BUNDLE-FORMAT-020", Refused, "a value must be text", "Names, namespaces, labels and annotations are text. YAML reads yes, on, 12 and 1e3 without quotes as something else: put them in quotes.";
    FROM_A_CLUSTER = "BUNDLE-FORMAT-021", Refused, "an object was copied from a cluster", "metadata.uid, resourceVersion and managedFields belong to one object in one cluster, and the API server refuses them in what is applied. Remove them, and with them creationTimestamp, generation and status.";
    NOT_CONVERTIBLE = "BUNDLE-FORMAT-022", Refused, "a registry+v1 bundle cannot be installed as plain objects", "A bundle of the Operator Lifecycle Manager becomes a namespace, accounts, roles, CRDs and Deployments. What only that manager can provide (webhooks, API services, install modes without AllNamespaces) is refused by name, and so is what the layout does not allow.";
    NOT_RENDERED = "BUNDLE-FORMAT-023", Refused, "the objects of a chart are not known", "A chart becomes objects only when helm renders it with values. kubectl bundle runs helm for that; the pod does not yet, and installs no charts.";
    BAD_CHART = "BUNDLE-FORMAT-024", Refused, "a chart cannot be used", "A helm+v3 bundle is a chart: Chart.yaml at the root of the bundle, or in the one folder there, with name and version, and its dependencies in charts/.";
    WRONG_CLASS = "BUNDLE-FORMAT-025", Refused, "the class reads another format", "Each of the three provisioners reads one format: core.rukpak.io/plain reads plain+v0, core.rukpak.io/registry registry+v1, core.rukpak.io/helm helm+v3. Name a class of the one that reads the content.";
}
