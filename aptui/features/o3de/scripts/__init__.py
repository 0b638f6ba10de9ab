"""O3DE's Python builder scripts run unchanged: a stand-in for `azlmbr`, adapted to the SDK."""
