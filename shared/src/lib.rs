//! The brain of offhours: schedules, verdicts, records, patches. No I/O, no clock.
