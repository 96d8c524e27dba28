//! What a validator and a fuzzer say of openapi.json.
