"""Training of the models that the package ships: ``python -m training``. No part of the wheel."""
