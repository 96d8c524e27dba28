module dwell.example/dwell

go 1.21
