"""O3DE's Python builder scripts run unchanged: `azlmbr` as they know it, adapted to the SDK."""
