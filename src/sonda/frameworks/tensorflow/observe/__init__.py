"""TensorFlow and Keras, observed inside the program."""
