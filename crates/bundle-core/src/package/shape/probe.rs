//! Fields of a probe in `bundle.yaml`.

use super::{Field, FieldType, Shape, Text, field, needed, shape, text};

pub(super) static PROBE: Shape = shape(&[
    Field {
        required: true,
        example: "{group: example.com, kind: Widget}",
        ..field(
            "selector",
            FieldType::Map(&SELECTOR),
            "Objects that must meet the assertions.",
        )
    },
    Field {
        required: true,
        ..field(
            "assertions",
            FieldType::Maps(&ASSERTION),
            "Assertions, each with one field. An object is healthy if it meets all of them. At \
            most 8.",
        )
    },
]);

static SELECTOR: Shape = shape(&[
    text(
        "group",
        Text::Group,
        "API group of the kind. Absent for the core group.",
    ),
    needed("kind", Text::BareKind, "Widget", "Kind of the objects."),
    text(
        "namespace",
        Text::Title,
        "Namespace of the objects. Absent for all namespaces.",
    ),
    text(
        "name",
        Text::Title,
        "Name of the object. Absent for all objects of the kind.",
    ),
]);

static ASSERTION: Shape = Shape {
    least: 1,
    unsupported: &[(
        "cel",
        "CEL rules are not supported, because their evaluation has no limit of memory and time: use conditionEqual, fieldsEqual or fieldValue",
    )],
    fields: &[
        field(
            "conditionEqual",
            FieldType::Map(&CONDITION_EQUAL),
            "A condition in status.conditions has this status.",
        ),
        field(
            "fieldsEqual",
            FieldType::Map(&FIELDS_EQUAL),
            "Two fields exist and are equal.",
        ),
        field(
            "fieldValue",
            FieldType::Map(&FIELD_VALUE),
            "A field has this value.",
        ),
    ],
};

static CONDITION_EQUAL: Shape = shape(&[
    needed("type", Text::Title, "Ready", "Type of the condition."),
    needed(
        "status",
        Text::OneOf(&["True", "False", "Unknown"]),
        "\"True\"",
        "Status of the condition, in quotes.",
    ),
]);

static FIELDS_EQUAL: Shape = shape(&[
    needed(
        "fieldA",
        Text::Pointer,
        "/spec/replicas",
        "JSON pointer of the first field.",
    ),
    needed(
        "fieldB",
        Text::Pointer,
        "/status/readyReplicas",
        "JSON pointer of the second field.",
    ),
]);

static FIELD_VALUE: Shape = shape(&[
    needed(
        "fieldPath",
        Text::Pointer,
        "/status/phase",
        "JSON pointer of the field.",
    ),
    needed(
        "value",
        Text::Any,
        "Running",
        "Value of the field as text. Numbers and booleans are compared by their JSON text.",
    ),
]);
