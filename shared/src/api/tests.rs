//! Tests of the custom resource and its parser.
