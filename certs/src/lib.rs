//! Certificates of the JobSet admission service.
