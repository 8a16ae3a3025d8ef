from .nvmlgpuselect import main

main()
