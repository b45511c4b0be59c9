//! Cells and messages that control switches, boards and routers.
//!
//! | module          | for                                  | carried in                           |
//! |-----------------|--------------------------------------|--------------------------------------|
//! | [`vunet`]       | a VuNet link's table                 | one cell on the reserved VCI 5       |
//! | [`reservation`] | a path reserved hop by hop            | one cell on VCI 6                    |
//! | [`vidboard`]    | the Vidboard's commands              | one cell                             |
//! | [`der`]         | a dynamically extensible router      | AAL5, or one cell to hardware        |
//! | [`dq`]          | the backlogs of its ports            | one cell to all ports                |
//!
//! The documents give the contents, not the layouts: all layouts here are our choice.

pub mod der;
pub mod dq;
pub mod reservation;
pub mod vidboard;
pub mod vunet;
