"""Open 3D Engine's dialect: its projects, settings and forms, translated into the engine's own terms."""
