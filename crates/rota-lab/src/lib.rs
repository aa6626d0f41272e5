//! rota-lab
