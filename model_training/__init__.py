"""Training of the models that the package ships: ``python -m model_training``. No part of the wheel."""
