//! What `lastmeter why` makes of a transfer: ledger, verdict, what-ifs.
//!
//! | module     | turns                                       | into     |
//! |------------|---------------------------------------------|----------|
//! | `historic` | the profiles of two hosts and their adapter | a ledger |

pub mod historic;
