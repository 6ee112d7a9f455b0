"""Metal, by the methods of Metal.framework through libobjc."""
