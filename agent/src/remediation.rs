//! The executor: the only interpreter of `agent_core::remediation::Action`.
