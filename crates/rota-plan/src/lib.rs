//! rota-plan
